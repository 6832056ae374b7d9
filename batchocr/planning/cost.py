"""A model's cost: its parameters, and the floating-point operations of its work.

A multiplication and an addition are two operations; norms, activations and rotary embedding are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from batchocr.planning.architecture import Architecture, LanguageShape, VisionShape


def num_parameters(architecture: Architecture) -> int:
    """Weights of all matrices; norms and biases, a thousandth of them, are not counted."""
    language = architecture.language
    embeddings = language.vocab_size * language.width * (1 if language.tied_embeddings else 2)
    vision = architecture.vision
    positions = vision.positions_side**2 * vision.width
    return _vision_weights(vision) + positions + _merger_weights(vision) + _body(language) + embeddings


def vision_flop(shape: VisionShape, num_patches: Iterable[int]) -> float:
    """Operations to encode images with these numbers of patches."""
    counts = list(num_patches)
    merger = _merger_weights(shape) / shape.merge_size**2
    linear = 2.0 * (_vision_weights(shape) + merger) * sum(counts)
    return linear + 4.0 * shape.width * shape.depth * sum(count**2 for count in counts)


def prefill_flop(shape: LanguageShape, lengths: Iterable[int]) -> float:
    """Operations to prefill prompts of these lengths. Causal attention covers half of each square; after the last
    layer's attention only each prompt's last token is processed."""
    lengths = list(lengths)
    attention = 2.0 * shape.q_width * shape.num_layers * sum(length**2 for length in lengths)
    behind_attention = shape.q_width * shape.width + 3 * shape.width * shape.mlp_width
    ended = 2.0 * behind_attention * (sum(lengths) - len(lengths))
    return 2.0 * (_body(shape) * sum(lengths) + shape.vocab_size * shape.width * len(lengths)) + attention - ended


def decode_flop(shape: LanguageShape, lengths: Iterable[int]) -> float:
    """Operations of one decode step for sequences of these lengths."""
    lengths = list(lengths)
    attention = 4.0 * shape.q_width * shape.num_layers * sum(lengths)
    return 2.0 * (_body(shape) + shape.vocab_size * shape.width) * len(lengths) + attention


def _vision_weights(shape: VisionShape) -> int:
    layer = 4 * shape.width**2 + shape.num_mlp_matrices * shape.width * shape.mlp_width
    return shape.patch_width * shape.width + shape.depth * layer


def _merger_weights(shape: VisionShape) -> int:
    merged = shape.width * shape.merge_size**2
    if shape.merger == "downsample":
        return merged * shape.out_width + shape.out_width**2 + 3 * shape.out_width * shape.merger_width
    return merged * shape.merger_width + shape.merger_width * shape.out_width


def _body(shape: LanguageShape) -> int:
    attention = 2 * shape.width * (shape.q_width + shape.kv_width)
    return shape.num_layers * (attention + 3 * shape.width * shape.mlp_width)
