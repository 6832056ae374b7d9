"""What a checkpoint is, as plain data, and how its JSON files are read and checked. What the data are for a family of
models is read by its module in `planning/families`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from batchocr.errors import ModelError

Renaming: TypeAlias = Sequence[tuple[str, str]]
"""What stored names begin with, and what ours begin with instead; the first that fits counts. N: a layer's number."""

VisionActivation = Literal["quick_gelu", "gelu_tanh", "silu_mul"]
"""The activation of the ViT's MLP: behind one inner layer, or between a gate and one. gelu_tanh: the GELU's
approximation."""
Merger = Literal["mlp", "normed_mlp", "downsample"]
"""How patches become image tokens. mlp: a LayerNorm, and an MLP over each square of patches. normed_mlp: the same
behind a LayerNorm of the ViT's. downsample: an RMSNorm, a convolution over each square, and a gated MLP."""

Normalisation: TypeAlias = tuple[tuple[float, float, float], tuple[float, float, float]]
"""Mean and standard deviation of red, green and blue from 0 to 1."""
CLIP: Final[Normalisation] = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""The mean and deviation of CLIP, which most vision models use."""

_LARGEST_PAGE = 3500 * 3500
"""Pixels of the largest page there is: no sound model has pages enlarged beyond it."""


@dataclass(frozen=True, slots=True)
class VisionShape:
    """The shape of the ViT."""

    activation: VisionActivation
    norm_eps: float
    has_rms_norms: bool
    """Whether the ViT's norms are RMSNorms; LayerNorms otherwise."""
    has_patch_bias: bool
    """Whether the patch projection has a bias."""
    has_qk_norms: bool
    """Whether queries and keys are normed, head by head, before they rotate."""
    merger: Merger
    merger_width: int
    """The inner width of the merger's MLP."""
    depth: int
    width: int
    num_heads: int
    mlp_width: int
    out_width: int
    """The language model's width, to which the merger projects."""
    patch_size: int
    merge_size: int
    temporal_patch_size: int
    """Frames in a patch; with one, the patch projection has no dimension for frames."""
    in_channels: int
    rope_theta: float
    positions_side: int = 0
    """Rows, and columns, of the table of learned positions, which is stretched over an image; 0 if there is none."""

    @property
    def head_dim(self) -> int:
        return self.width // self.num_heads

    @property
    def num_mlp_matrices(self) -> int:
        return 3 if self.activation == "silu_mul" else 2

    @property
    def patch_width(self) -> int:
        """Values in a patch of one frame."""
        return self.in_channels * self.patch_size**2


@dataclass(frozen=True, slots=True)
class LanguageShape:
    """The shape of the language model."""

    num_layers: int
    width: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_width: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    mrope_section: tuple[int, int, int]
    """How many of head_dim / 2 frequencies rotate with time, height and width."""
    max_positions: int
    tied_embeddings: bool
    has_biases: bool
    """Whether q, k and v have biases."""
    rotates_neighbours: bool
    """Whether a head's even and odd values rotate in pairs; its halves do otherwise."""
    has_branch_norms: bool
    """Whether attention and MLP are normed once more before they are added."""

    @property
    def q_width(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.num_kv_heads * self.head_dim


ResizeRule = Literal["single frame", "raised sides", "two frames"]
"""How an image is brought within its limits. single frame: the limits are those of the image. raised sides: as single
frame, but sides shorter than an image token's are brought to that first, one after the other. two frames: the limits
are those of a video of two such images, and an image with a side shorter than an image token's is enlarged first."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """How images become patches."""

    min_pixels: int
    """The fewest pixels that an image has after the resize."""
    max_pixels: int
    mean: tuple[float, float, float]
    """The mean of red, green and blue, each from 0 to 1."""
    std: tuple[float, float, float]
    resize: ResizeRule = "single frame"

    @property
    def num_frames(self) -> int:
        """How often the limits count a pixel."""
        return 2 if self.resize == "two frames" else 1


@dataclass(frozen=True, slots=True)
class Chat:
    """How a question is put to the model."""

    image_token_id: int
    system: str
    """What the system says first; empty if there is no such message."""
    example: str
    """A prompt of the family, for a question that only tries whether the model answers."""
    rendered: str | None = None
    """What the chat template has to make of the example; None for a family whose templates differ."""


@dataclass(frozen=True, slots=True)
class DetectorUse:
    """How a model is read with a layout detector."""

    usual: str | None = None
    """The detector that is taken if none is named; None if the model finds layouts itself."""
    types: tuple[str, ...] = ("pp_doclayout_v2", "pp_doclayout_v3")
    """The model_type of each that can be named."""
    least_score: float = 0.5
    """The least score with which what a detector finds counts."""
    least_scores: Mapping[str, float] = field(default_factory=dict)
    """The least scores of labels that have one of their own, in place of `least_score`."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the JSON files of a checkpoint say of it."""

    family: str
    """The `model_type` of the checkpoint's config.json, a key of `planning/families`."""
    vision: VisionShape
    language: LanguageShape
    images: ImageLimits
    chat: Chat
    names: Renaming
    """The names of tensors."""
    surplus: tuple[str, ...] | None = None
    """What the names of stored tensors begin with that are not needed; None if there may be any others."""
    detectors: DetectorUse = field(default_factory=DetectorUse)
    """How layouts are found, if not by the model."""


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


def refuse_quantised(*parts: Mapping[str, Any]) -> None:
    """Raises ModelError if weights are not stored as what they stand for: such a checkpoint would load, and answer with
    nonsense."""
    if any(part.get("quantization_config") for part in parts):
        raise ModelError(
            "this checkpoint is quantised (config.json has a quantization_config), which batchocr does not support: "
            "use the original one, in bfloat16, float16 or float32"
        )


def require_activations(text: Mapping[str, Any], vision: Mapping[str, Any], of_vision: str) -> None:
    """Raises ModelError if the language model's activation is not SiLU, or the ViT's not this one. text, vision: the
    parts of config.json about them."""
    for name, part, ours in (("language", text, "silu"), ("vision", vision, of_vision)):
        if (found := part.get("hidden_act", ours)) != ours:
            raise ModelError(f"the {name} model's hidden_act is '{found}'; batchocr supports only '{ours}'")


def check_shapes(vision: VisionShape, language: LanguageShape) -> None:
    """Raises ModelError if the numbers do not fit one another."""

    def require(holds: bool, sentence: str) -> None:
        if not holds:
            raise ModelError(f"the checkpoint's config.json is inconsistent: {sentence}")

    heads = (language.num_heads, language.num_kv_heads, vision.num_heads)
    require(min(heads) > 0, "num_attention_heads, num_key_value_heads and the vision num_heads must be positive")
    require(min(language.num_layers, vision.depth) > 0, "num_hidden_layers and the vision depth must be positive")
    require(language.max_positions > 0, "max_position_embeddings must be positive")
    require(min(vision.patch_size, vision.merge_size) > 0, "patch_size and spatial_merge_size must be positive")
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


def read_language_shape(
    root: Mapping[str, Any],
    text: Mapping[str, Any],
    rope: Mapping[str, Any],
    *,
    rotates_neighbours: bool,
    has_branch_norms: bool,
) -> LanguageShape:
    """The language model of a family whose checkpoints name every value, and that has no biases. root: config.json.
    text, rope: the parts of it that are about the language model, and about its rotary positions. Raises ModelError,
    KeyError, ArithmeticError, TypeError or ValueError."""
    if rope.get("rope_type", "default") != "default" or float(rope.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ModelError("this checkpoint rotates only a part of each head, or by other rules, which batchocr does not")
    temporal, height, width = rope["mrope_section"]
    return LanguageShape(
        num_layers=int(text["num_hidden_layers"]),
        width=int(text["hidden_size"]),
        num_heads=int(text["num_attention_heads"]),
        num_kv_heads=int(text["num_key_value_heads"]),
        head_dim=int(text["head_dim"]),
        mlp_width=int(text["intermediate_size"]),
        vocab_size=int(text["vocab_size"]),
        rms_norm_eps=float(text["rms_norm_eps"]),
        rope_theta=float(rope["rope_theta"] if "rope_theta" in rope else text["rope_theta"]),
        mrope_section=(int(temporal), int(height), int(width)),
        max_positions=int(text["max_position_embeddings"]),
        tied_embeddings=bool(root.get("tie_word_embeddings") or text.get("tie_word_embeddings")),
        has_biases=False,
        rotates_neighbours=rotates_neighbours,
        has_branch_norms=has_branch_norms,
    )


def read_image_limits(
    folder: Path,
    vision: VisionShape,
    resize: ResizeRule = "single frame",
    usual: tuple[int, int] = (56 * 56, 28 * 28 * 1280),
    normalisation: Normalisation | None = None,
) -> ImageLimits:
    """The preprocessor's limits and normalisation. Raises ModelError if we cannot follow them.

    usual: the limits of a preprocessor that names none, as in transformers. Both common forms are read: `min_pixels`
    and `max_pixels`, or `size.shortest_edge` and `size.longest_edge`. normalisation: of the family, if it has but one.
    """
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
        red, green, blue = values.get("image_mean", CLIP[0])
        std_red, std_green, std_blue = values.get("image_std", CLIP[1])
        limits = ImageLimits(
            min_pixels=int(values.get("min_pixels") or size.get("shortest_edge") or usual[0]),
            max_pixels=int(values.get("max_pixels") or size.get("longest_edge") or usual[1]),
            mean=(float(red), float(green), float(blue)),
            std=(float(std_red), float(std_green), float(std_blue)),
            resize=resize,
        )
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise ModelError(f"{folder}: the preprocessor holds a value that does not fit: {error}") from error
    if normalisation not in (None, found := (limits.mean, limits.std)):
        raise ModelError(
            f"{folder}: image_mean and image_std of the preprocessor are {found}, not {normalisation}: it is another "
            "version of the model"
        )
    if not 0 < limits.min_pixels <= min(limits.max_pixels, _LARGEST_PAGE):
        raise ModelError(
            f"{folder}: the preprocessor would enlarge every image to {limits.min_pixels:,} px and reduce it to "
            f"{limits.max_pixels:,}, which cannot be: see min_pixels and max_pixels"
        )
    return limits


def processor_template(folder: Path) -> str | dict[str, str] | None:
    """The chat template in a file that only a processor reads; it comes before the tokenizer's own. Raises ModelError.

    The tokenizer itself prefers chat_template.jinja to tokenizer_config.json. Source: transformers' `ProcessorMixin`.
    """
    for name in ("processor_config.json", "chat_template.json"):
        if (folder / name).exists() and (template := read_json(folder, name).get("chat_template")):
            return cast(str | dict[str, str], template)
    return None


def _preprocessor_values(folder: Path) -> dict[str, Any]:
    """The image processor's fields. Raises ModelError if there are none.

    Those nested in processor_config.json come first, as in transformers' `ImageProcessingMixin`.
    """
    if (folder / "processor_config.json").exists():
        nested = read_json(folder, "processor_config.json").get("image_processor")
        if isinstance(nested, dict):
            return nested
    return read_json(folder, "preprocessor_config.json")
