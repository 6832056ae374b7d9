"""PaddleOCR-VL checkpoints, 1.0, 1.5 and 1.6: their configuration as an `Architecture`.

Both layouts of `config.json` are read: text fields at its root, or under `text_config`.
Source: transformers' `paddleocr_vl`, and PaddleX for what its pipeline does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from batchocr.errors import ModelError
from batchocr.planning.architecture import (
    Architecture,
    Chat,
    DetectorUse,
    LanguageShape,
    Renaming,
    VisionShape,
    check_shapes,
    processor_template,
    read_image_limits,
    read_json,
    read_language_shape,
    refuse_quantised,
    require_activations,
)

SHAPES: Final = (
    VisionShape(
        activation="gelu_tanh",
        norm_eps=1e-6,
        has_rms_norms=False,
        has_patch_bias=True,
        has_qk_norms=False,
        merger="normed_mlp",
        merger_width=4608,
        depth=27,
        width=1152,
        num_heads=16,
        mlp_width=4304,
        out_width=1024,
        patch_size=14,
        merge_size=2,
        temporal_patch_size=1,
        in_channels=3,
        rope_theta=10_000.0,
        positions_side=27,
    ),
    LanguageShape(
        num_layers=18,
        width=1024,
        num_heads=16,
        num_kv_heads=2,
        head_dim=128,
        mlp_width=3072,
        vocab_size=103_424,
        rms_norm_eps=1e-5,
        rope_theta=500_000.0,
        mrope_section=(16, 24, 24),
        max_positions=131_072,
        tied_embeddings=False,
        has_biases=False,
        rotates_neighbours=False,
        has_branch_norms=False,
    ),
)
"""The shapes of the published models."""

_PROMPT: Final = "OCR:"
_RENDERED: Final = f"<|begin_of_sentence|>User: <|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>{_PROMPT}\nAssistant:"
"""What the chat templates make of the prompt, and then a space or a newline."""
_MIN_PIXELS, _MAX_PIXELS = 112_896, 1_003_520
"""The limits that the pipeline sets for every prompt, whatever the preprocessor says."""
_SURE: Final = ("display_formula", "inline_formula", "formula", "doc_title", "paragraph_title", "text", "vertical_text")
_V2: Final = DetectorUse(
    "PaddlePaddle/PP-DocLayoutV2_safetensors",
    ("pp_doclayout_v2",),
    least_score=0.5,
    least_scores={**dict.fromkeys(_SURE, 0.4), "seal": 0.45},
)
_V3: Final = DetectorUse("PaddlePaddle/PP-DocLayoutV3_safetensors", ("pp_doclayout_v3",), least_score=0.3)
DETECTORS: Final[Mapping[str, DetectorUse]] = {" ": _V2, "\n": _V3}
"""The detector, by the character that ends the prompt: a space in 1.0, a newline in 1.5 and 1.6."""


def _names() -> Renaming:
    """What the names of weights become: those of the published checkpoints, and those that transformers gives the same
    weights."""
    layer = {
        "layer_norm1.": "norm1.",
        "layer_norm2.": "norm2.",
        "self_attn.out_proj.": "attn.proj.",
        "self_attn.": "attn.",
        "": "",
    }
    vision = {
        **{f"encoder.layers.N.{stored}": f"blocks.N.{ours}" for stored, ours in layer.items()},
        "embeddings.patch_embedding.": "patch_embed.proj.",
        "embeddings.position_embedding.": "position_embedding.",
        "": "",
    }
    projector = {"pre_norm.": "ln_q.", "linear_1.": "mlp.0.", "linear_2.": "mlp.2."}
    roots = (
        *(("model.visual.vision_model.", "visual.", vision), ("visual.vision_model.", "visual.", vision)),
        *(("model.projector.", "visual.merger.", projector), ("mlp_AR.", "visual.merger.", projector)),
        *(("model.language_model.", "language_model.", {"": ""}), ("model.", "language_model.", {"": ""})),
    )
    return tuple((root + stored, ours + name) for root, ours, parts in roots for stored, name in parts.items())


def read(folder: Path, config: Mapping[str, Any]) -> Architecture:
    """The checkpoint in this folder. config: its config.json. Raises ModelError; KeyError, TypeError, ValueError,
    ArithmeticError or AttributeError if a value is missing or does not fit."""
    text, vision = config.get("text_config") or config, config["vision_config"]
    refuse_quantised(config, text, vision)
    require_activations(text, vision, "gelu_pytorch_tanh")
    if text.get("use_bias"):
        raise ModelError("the language model has biases (use_bias), which no PaddleOCR-VL has")
    rope = text.get("rope_parameters") or text["rope_scaling"]
    language_shape = read_language_shape(config, text, rope, rotates_neighbours=False, has_branch_norms=False)
    vision_shape = _vision_shape(vision, language_shape.width)
    check_shapes(vision_shape, language_shape)
    if vision_shape.positions_side < 1:
        raise ModelError(f"image_size {vision['image_size']} is smaller than a patch: there is no table of positions")
    half = (0.5, 0.5, 0.5)
    images = read_image_limits(folder, vision_shape, "raised sides", normalisation=(half, half))
    end = _end_of_prompt(folder)
    return Architecture(
        family=config["model_type"],
        vision=vision_shape,
        language=language_shape,
        images=replace(images, min_pixels=_MIN_PIXELS, max_pixels=_MAX_PIXELS),
        chat=Chat(int(config["image_token_id"]), system="", example=_PROMPT, rendered=_RENDERED + end),
        names=_names(),
        surplus=("visual.embeddings.packing_position_embedding.", "visual.head."),
        detectors=DETECTORS[end],
    )


def _end_of_prompt(folder: Path) -> str:
    """What comes behind "Assistant:" in the chat template, which tells the versions apart. Raises ModelError."""
    template: object = processor_template(folder)
    if template is None and (file := folder / "chat_template.jinja").is_file():
        try:
            template = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ModelError(f"{file} cannot be read: {error}") from error
    if template is None and (folder / "tokenizer_config.json").exists():
        template = read_json(folder, "tokenizer_config.json").get("chat_template")
    ends = re.findall(r"Assistant:( |\\+n)", json.dumps(template))  # a text, or several by name
    if not ends:
        raise ModelError(f"{folder}: the chat template, if there is one, is not that of a PaddleOCR-VL")
    return " " if ends[-1] == " " else "\n"


def _vision_shape(vision: Mapping[str, Any], language_width: int) -> VisionShape:
    width, merge_size, patch_size = int(vision["hidden_size"]), int(vision["spatial_merge_size"]), vision["patch_size"]
    return VisionShape(
        activation="gelu_tanh",
        norm_eps=float(vision.get("layer_norm_eps", 1e-6)),
        has_rms_norms=False,
        has_patch_bias=True,
        has_qk_norms=False,
        merger="normed_mlp",
        merger_width=width * merge_size**2,
        depth=int(vision["num_hidden_layers"]),
        width=width,
        num_heads=int(vision["num_attention_heads"]),
        mlp_width=int(vision["intermediate_size"]),
        out_width=language_width,
        patch_size=int(patch_size),
        merge_size=merge_size,
        temporal_patch_size=1,
        in_channels=int(vision.get("num_channels", 3)),
        rope_theta=float((vision.get("rope_parameters") or {}).get("rope_theta", 10_000.0)),
        positions_side=int(vision["image_size"]) // int(patch_size),
    )
