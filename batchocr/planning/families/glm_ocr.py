"""GLM-OCR checkpoints: their configuration as an `Architecture`.

Source: transformers' `glm_ocr`; its defaults are not those of the published model, which names every value here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from batchocr.planning.architecture import (
    CLIP,
    Architecture,
    Chat,
    DetectorUse,
    LanguageShape,
    VisionShape,
    check_shapes,
    read_image_limits,
    read_language_shape,
    refuse_quantised,
    require_activations,
)

SHAPES: Final = (
    VisionShape(
        activation="silu_mul",
        norm_eps=1e-5,
        has_rms_norms=True,
        has_patch_bias=True,
        has_qk_norms=True,
        merger="downsample",
        merger_width=4608,
        depth=24,
        width=1024,
        num_heads=16,
        mlp_width=4096,
        out_width=1536,
        patch_size=14,
        merge_size=2,
        temporal_patch_size=2,
        in_channels=3,
        rope_theta=10_000.0,
    ),
    LanguageShape(
        num_layers=16,
        width=1536,
        num_heads=16,
        num_kv_heads=8,
        head_dim=128,
        mlp_width=4608,
        vocab_size=59_392,
        rms_norm_eps=1e-5,
        rope_theta=10_000.0,
        mrope_section=(16, 24, 24),
        max_positions=131_072,
        tied_embeddings=False,
        has_biases=False,
        rotates_neighbours=True,
        has_branch_norms=True,
    ),
)
"""The shapes of the published model."""

_PROMPT: Final = "Text Recognition:"
_RENDERED: Final = f"[gMASK]<sop><|user|>\n<|begin_of_image|><|image|><|end_of_image|>{_PROMPT}<|assistant|>\n"
"""The prompt as others quote the model's chat template has it: a checkpoint with another template is refused rather
than read by guess."""
_PIXELS: Final = (112 * 112, 28 * 28 * 15_000)


def read(folder: Path, config: Mapping[str, Any]) -> Architecture:
    """The checkpoint in this folder. config: its config.json. Raises ModelError; KeyError, TypeError, ValueError,
    ArithmeticError or AttributeError if a value is missing or does not fit."""
    text, vision = config["text_config"], config["vision_config"]
    refuse_quantised(config, text, vision)
    require_activations(text, vision, "silu")
    vision_shape = _vision_shape(vision)
    language_shape = read_language_shape(
        config, text, text["rope_parameters"], rotates_neighbours=True, has_branch_norms=True
    )
    check_shapes(vision_shape, language_shape)
    return Architecture(
        family=config["model_type"],
        vision=vision_shape,
        language=language_shape,
        images=read_image_limits(folder, vision_shape, "two frames", _PIXELS, CLIP),
        chat=Chat(int(config["image_token_id"]), system="", example=_PROMPT, rendered=_RENDERED),
        names=(("model.visual.", "visual."), ("model.language_model.", "language_model.")),
        surplus=(f"language_model.layers.{language_shape.num_layers}.",),
        detectors=DetectorUse("PaddlePaddle/PP-DocLayoutV3_safetensors", ("pp_doclayout_v3",), least_score=0.3),
    )


def _vision_shape(vision: Mapping[str, Any]) -> VisionShape:
    out_width, channels = int(vision["out_hidden_size"]), int(vision.get("in_channels", 3))
    return VisionShape(
        activation="silu_mul",
        norm_eps=float(vision["rms_norm_eps"]),
        has_rms_norms=True,
        has_patch_bias=True,
        has_qk_norms=True,
        merger="downsample",
        merger_width=out_width * channels,
        depth=int(vision["depth"]),
        width=int(vision["hidden_size"]),
        num_heads=int(vision["num_heads"]),
        mlp_width=int(vision["intermediate_size"]),
        out_width=out_width,
        patch_size=int(vision["patch_size"]),
        merge_size=int(vision["spatial_merge_size"]),
        temporal_patch_size=int(vision["temporal_patch_size"]),
        in_channels=channels,
        rope_theta=float((vision.get("rope_parameters") or {}).get("rope_theta", 10000.0)),
    )
