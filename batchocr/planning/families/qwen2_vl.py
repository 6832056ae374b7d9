"""Qwen2-VL checkpoints, such as MinerU2.5: their configuration as an `Architecture`.

Both common layouts of `config.json` are read: text fields at its root, or under `text_config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from batchocr.errors import ModelError
from batchocr.planning.architecture import (
    Architecture,
    Chat,
    LanguageShape,
    VisionShape,
    check_shapes,
    read_image_limits,
    refuse_quantised,
    require_activations,
)

SHAPES: Final = (
    VisionShape(
        activation="quick_gelu",
        norm_eps=1e-6,
        has_rms_norms=False,
        has_patch_bias=False,
        has_qk_norms=False,
        merger="mlp",
        merger_width=5120,
        depth=32,
        width=1280,
        num_heads=16,
        mlp_width=5120,
        out_width=896,
        patch_size=14,
        merge_size=2,
        temporal_patch_size=2,
        in_channels=3,
        rope_theta=10_000.0,
    ),
    LanguageShape(
        num_layers=24,
        width=896,
        num_heads=14,
        num_kv_heads=2,
        head_dim=64,
        mlp_width=4864,
        vocab_size=151_936,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        mrope_section=(8, 12, 12),
        max_positions=32_768,
        tied_embeddings=True,
        has_biases=True,
        rotates_neighbours=False,
        has_branch_norms=False,
    ),
)
"""The shapes of MinerU2.5."""

NAMES: Final = (
    *(("model.visual.", "visual."), ("model.language_model.", "language_model."), ("model.lm_head.", "lm_head.")),
    *((name, name) for name in ("visual.", "language_model.", "lm_head.")),
    *((name, "language_model.") for name in ("model.", "")),
)
"""The names of weights: older checkpoints store `visual.…` and `model.layers.…`, newer ones `model.visual.…` and
`model.language_model.layers.…`."""


def read(folder: Path, config: Mapping[str, Any]) -> Architecture:
    """The checkpoint in this folder. config: its config.json. Raises ModelError; KeyError, TypeError, ValueError,
    ArithmeticError or AttributeError if a value is missing or does not fit."""
    text, vision = config.get("text_config") or config, config["vision_config"]
    refuse_quantised(config, text, vision)
    require_activations(text, vision, "quick_gelu")
    language_shape = _language_shape(config, text)
    vision_shape = _vision_shape(vision, language_shape.width)
    check_shapes(vision_shape, language_shape)
    return Architecture(
        family=config["model_type"],
        vision=vision_shape,
        language=language_shape,
        images=read_image_limits(folder, vision_shape),
        chat=Chat(
            image_token_id=int(config.get("image_token_id", 151655)),
            system="You are a helpful assistant.",
            example="\nText Recognition:",
        ),
        names=NAMES,
    )


def _language_shape(root: Mapping[str, Any], text: Mapping[str, Any]) -> LanguageShape:
    if text.get("use_sliding_window"):
        raise ModelError("this checkpoint uses sliding-window attention, which batchocr does not support")
    rope = text.get("rope_parameters") or text.get("rope_scaling") or root.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type not in ("default", "mrope"):
        raise ModelError(
            f"this checkpoint uses rotary positions of type '{rope_type}', which batchocr does not support"
        )
    theta = rope.get("rope_theta", text.get("rope_theta", root.get("rope_theta", 1e6)))
    num_heads = int(text["num_attention_heads"])
    temporal, height, width = rope.get("mrope_section", (16, 24, 24))
    hidden_size = int(text["hidden_size"])
    if num_heads > 0 and hidden_size % num_heads:
        raise ModelError(
            "the checkpoint's config.json is inconsistent: hidden_size is not a multiple of num_attention_heads"
        )
    return LanguageShape(
        num_layers=int(text["num_hidden_layers"]),
        width=hidden_size,
        num_heads=num_heads,
        num_kv_heads=int(text.get("num_key_value_heads") or num_heads),
        head_dim=hidden_size // max(1, num_heads),
        mlp_width=int(text["intermediate_size"]),
        vocab_size=int(text["vocab_size"]),
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-5)),
        rope_theta=float(theta),
        mrope_section=(int(temporal), int(height), int(width)),
        max_positions=int(text.get("max_position_embeddings", 32768)),
        tied_embeddings=bool(root.get("tie_word_embeddings") or text.get("tie_word_embeddings")),
        has_biases=True,
        rotates_neighbours=False,
        has_branch_norms=False,
    )


def _vision_shape(vision: Mapping[str, Any], language_width: int) -> VisionShape:
    width, merge_size = int(vision["embed_dim"]), int(vision.get("spatial_merge_size", 2))
    return VisionShape(
        activation="quick_gelu",
        norm_eps=1e-6,
        has_rms_norms=False,
        has_patch_bias=False,
        has_qk_norms=False,
        merger="mlp",
        merger_width=width * merge_size**2,
        depth=int(vision["depth"]),
        width=width,
        num_heads=int(vision["num_heads"]),
        mlp_width=int(width * vision.get("mlp_ratio", 4)),
        out_width=int(vision.get("hidden_size", language_width)),
        patch_size=int(vision.get("patch_size", 14)),
        merge_size=merge_size,
        temporal_patch_size=int(vision.get("temporal_patch_size", 2)),
        in_channels=int(vision.get("in_channels", vision.get("in_chans", 3))),
        rope_theta=float((vision.get("rope_parameters") or {}).get("rope_theta", 10000.0)),
    )
