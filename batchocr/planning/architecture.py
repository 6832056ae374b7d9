"""The dimensions of a checkpoint, read from its JSON files and checked.

Both common layouts are supported: text fields at the root of `config.json` or under `text_config`, and image
limits as `min_pixels`/`max_pixels` or as `size.shortest_edge`/`size.longest_edge`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchocr.errors import ModelError

_LARGEST_PAGE = 3500 * 3500
"""Pixels of the largest page there is: no sound model has pages enlarged beyond it."""


@dataclass(frozen=True, slots=True)
class VisionShape:
    """The ViT."""

    depth: int
    width: int
    num_heads: int
    mlp_width: int
    out_width: int
    """The language model's width, to which the merger projects."""
    patch_size: int
    merge_size: int
    temporal_patch_size: int
    in_channels: int
    rope_theta: float

    @property
    def head_dim(self) -> int:
        return self.width // self.num_heads

    @property
    def patch_width(self) -> int:
        """Values in a patch of one frame."""
        return self.in_channels * self.patch_size**2


@dataclass(frozen=True, slots=True)
class LanguageShape:
    """The language model."""

    num_layers: int
    width: int
    num_heads: int
    num_kv_heads: int
    mlp_width: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    mrope_section: tuple[int, int, int]
    """How many of head_dim / 2 frequencies rotate with time, height and width."""
    max_positions: int
    tied_embeddings: bool

    @property
    def head_dim(self) -> int:
        return self.width // self.num_heads


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """How images become patches."""

    min_pixels: int
    """After the resize, as `max_pixels`."""
    max_pixels: int
    mean: tuple[float, float, float]
    """Of red, green and blue from 0 to 1, as `std`."""
    std: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Architecture:
    vision: VisionShape
    language: LanguageShape
    images: ImageLimits
    image_token_id: int


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """The object in one of a checkpoint's JSON files. Raises ModelError if it is missing or broken."""
    path = folder / name
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
            raise ModelError(f"{path} cannot be read: it is a folder or a device, not a file")
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"{folder} holds no {name}: is it a Hugging Face checkpoint folder?") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} should hold a JSON object")
    return value


def read_architecture(folder: Path) -> Architecture:
    """Read a Qwen2-VL checkpoint's shape. Raises a ModelError that says what does not fit."""
    config = read_json(folder, "config.json")
    if config.get("model_type") != "qwen2_vl":
        found = config.get("model_type") or ", ".join(config.get("architectures") or []) or "unknown"
        raise ModelError(
            f"{folder} is a checkpoint of the architecture '{found}'. batchocr runs Qwen2-VL checkpoints "
            "(model_type 'qwen2_vl'), such as MinerU2.5"
        )
    text = config.get("text_config") or config
    try:
        _refuse_other_arithmetic(config, text, config["vision_config"])
        language = _language_shape(config, text)
        vision = _vision_shape(config["vision_config"], language.width)
        image_token_id = int(config.get("image_token_id", 151655))
    except KeyError as error:
        raise ModelError(f"{folder / 'config.json'} lacks the field {error}") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelError(f"{folder / 'config.json'} holds a value that does not fit: {error}") from error
    _check(vision, language)
    return Architecture(vision, language, _image_limits(folder, vision), image_token_id)


def _refuse_other_arithmetic(root: Mapping[str, Any], text: Mapping[str, Any], vision: Mapping[str, Any]) -> None:
    """Raises ModelError if the weights are not what they stand for, or if the activations are not ours.

    Such a checkpoint would load, and answer with nonsense.
    """
    if any(part.get("quantization_config") for part in (root, text, vision)):
        raise ModelError(
            "this checkpoint is quantised (config.json has a quantization_config), which batchocr does not support: "
            "use the original one, in bfloat16, float16 or float32"
        )
    for name, part, ours in (("language", text, "silu"), ("vision", vision, "quick_gelu")):
        if (found := part.get("hidden_act", ours)) != ours:
            raise ModelError(f"the {name} model's hidden_act is '{found}'; batchocr supports only '{ours}'")


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
    return LanguageShape(
        num_layers=int(text["num_hidden_layers"]),
        width=int(text["hidden_size"]),
        num_heads=num_heads,
        num_kv_heads=int(text.get("num_key_value_heads") or num_heads),
        mlp_width=int(text["intermediate_size"]),
        vocab_size=int(text["vocab_size"]),
        rms_norm_eps=float(text.get("rms_norm_eps", 1e-5)),
        rope_theta=float(theta),
        mrope_section=(int(temporal), int(height), int(width)),
        max_positions=int(text.get("max_position_embeddings", 32768)),
        tied_embeddings=bool(root.get("tie_word_embeddings") or text.get("tie_word_embeddings")),
    )


def _vision_shape(vision: Mapping[str, Any], language_width: int) -> VisionShape:
    width = int(vision["embed_dim"])
    return VisionShape(
        depth=int(vision["depth"]),
        width=width,
        num_heads=int(vision["num_heads"]),
        mlp_width=int(width * vision.get("mlp_ratio", 4)),
        out_width=int(vision.get("hidden_size", language_width)),
        patch_size=int(vision.get("patch_size", 14)),
        merge_size=int(vision.get("spatial_merge_size", 2)),
        temporal_patch_size=int(vision.get("temporal_patch_size", 2)),
        in_channels=int(vision.get("in_channels", vision.get("in_chans", 3))),
        rope_theta=float((vision.get("rope_parameters") or {}).get("rope_theta", 10000.0)),
    )


def _check(vision: VisionShape, language: LanguageShape) -> None:
    def require(holds: bool, sentence: str) -> None:
        if not holds:
            raise ModelError(f"the checkpoint's config.json is inconsistent: {sentence}")

    heads = (language.num_heads, language.num_kv_heads, vision.num_heads)
    require(min(heads) > 0, "num_attention_heads, num_key_value_heads and the vision num_heads must be positive")
    require(min(language.num_layers, vision.depth) > 0, "num_hidden_layers and the vision depth must be positive")
    require(language.max_positions > 0, "max_position_embeddings must be positive")
    require(min(vision.patch_size, vision.merge_size) > 0, "patch_size and spatial_merge_size must be positive")
    require(language.width % language.num_heads == 0, "hidden_size is not a multiple of num_attention_heads")
    require(language.num_heads % language.num_kv_heads == 0, "the query heads cannot be shared among the KV heads")
    require(
        2 * sum(language.mrope_section) == language.head_dim,
        f"mrope_section {list(language.mrope_section)} sums to {sum(language.mrope_section)}, "
        f"but half of head_dim {language.head_dim} is {language.head_dim / 2:g}",
    )
    require(vision.width % vision.num_heads == 0, "vision embed_dim is no multiple of num_heads")
    require(vision.head_dim % 4 == 0, "the vision head_dim is no multiple of 4, which 2-D rotary positions need")
    require(vision.out_width == language.width, "vision hidden_size is not the language model's hidden_size")
    require(vision.in_channels == 3, "the vision model does not take RGB images")


def _image_limits(folder: Path, vision: VisionShape) -> ImageLimits:
    values = _preprocessor_values(folder)
    size = values.get("size") or {}
    for name in ("do_resize", "do_rescale", "do_normalize"):
        if values.get(name) is False:
            raise ModelError(f"{folder}: the preprocessor sets {name} to false, which batchocr does not support")
    for name in ("patch_size", "merge_size", "temporal_patch_size"):
        expected = getattr(vision, name)
        if values.get(name, expected) != expected:
            raise ModelError(f"{folder}: {name} is {values[name]} in the preprocessor, {expected} in the model")
    try:
        red, green, blue = values.get("image_mean", (0.48145466, 0.4578275, 0.40821073))
        std_red, std_green, std_blue = values.get("image_std", (0.26862954, 0.26130258, 0.27577711))
        limits = ImageLimits(
            min_pixels=int(values.get("min_pixels") or size.get("shortest_edge") or 56 * 56),
            max_pixels=int(values.get("max_pixels") or size.get("longest_edge") or 28 * 28 * 1280),
            mean=(float(red), float(green), float(blue)),
            std=(float(std_red), float(std_green), float(std_blue)),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelError(f"{folder}: the preprocessor holds a value that does not fit: {error}") from error
    if not 0 < limits.min_pixels <= min(limits.max_pixels, _LARGEST_PAGE):
        raise ModelError(
            f"{folder}: the preprocessor would enlarge every image to {limits.min_pixels:,} px and reduce it to "
            f"{limits.max_pixels:,}, which cannot be: see min_pixels and max_pixels"
        )
    return limits


def _preprocessor_values(folder: Path) -> dict[str, Any]:
    """The image processor's fields. Raises ModelError if there are none.

    Those nested in processor_config.json come first, as in transformers' `ImageProcessingMixin`.
    """
    if (folder / "processor_config.json").exists():
        nested = read_json(folder, "processor_config.json").get("image_processor")
        if isinstance(nested, dict):
            return nested
    return read_json(folder, "preprocessor_config.json")
