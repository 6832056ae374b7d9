"""A checkpoint with a model's shape and random weights: it cannot read, but every step takes as long.

Its end token is outside its vocabulary, so an answer has `max_new_tokens` tokens in any engine, and all engines do the
same work. MinerU2.5's takes 2.3 GB in bfloat16, GLM-OCR's 2.2, PaddleOCR-VL's 1.9. Tokenizers and chat templates are
those of the tests.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor

from batchocr.planning.architecture import CLIP, Architecture, ImageLimits
from batchocr.planning.families import FAMILIES
from benchmarks import QUICK_MODEL
from tests.support.glm_checkpoints import IMAGE, glm_tokenizer
from tests.support.mineru_shape import MINERU
from tests.support.paddle_checkpoints import IMAGE as PADDLE_IMAGE
from tests.support.paddle_checkpoints import paddle_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

USUAL: Final = MINERU.family
WEIGHT_STD = 0.02
_POOL_VALUES = 1 << 25

_GLM_VISION, _GLM_LANGUAGE = FAMILIES["glm_ocr"].shapes
_PADDLE_VISION, _PADDLE_LANGUAGE = FAMILIES["paddleocr_vl"].shapes
SHAPES: Final[Mapping[str, Architecture]] = {
    USUAL: MINERU,
    "glm_ocr": replace(
        MINERU,
        family="glm_ocr",
        vision=_GLM_VISION,
        language=_GLM_LANGUAGE,
        images=ImageLimits(12_544, 9_633_792, *CLIP, "two frames"),
    ),
    "paddleocr_vl": replace(
        MINERU,
        family="paddleocr_vl",
        vision=_PADDLE_VISION,
        language=_PADDLE_LANGUAGE,
        images=ImageLimits(112_896, 1_003_520, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "raised sides"),
    ),
}
"""By the `model_type` of a checkpoint."""


def smoke_shape(family: str) -> Architecture:
    """The family's shape, made small."""
    shape = SHAPES[family]
    merger_width = 192 if shape.vision.merger == "downsample" else 256
    is_fixed = shape.images.resize == "raised sides"  # whatever a preprocessor says
    max_pixels = shape.images.max_pixels if is_fixed else 100_000 * shape.images.num_frames
    return replace(
        shape,
        vision=replace(
            shape.vision, depth=1, width=64, num_heads=2, mlp_width=256, merger_width=merger_width, out_width=64
        ),
        language=replace(
            shape.language,
            num_layers=1,
            width=64,
            num_heads=2,
            num_kv_heads=1,
            head_dim=32,
            mlp_width=96,
            vocab_size=1024,
            mrope_section=(4, 6, 6),
        ),
        images=replace(shape.images, max_pixels=max_pixels),
    )


SMOKE_SHAPE = smoke_shape(USUAL)


@contextmanager
def checkpoint(folder: Path | None, *, smoke: bool, family: str = USUAL) -> Iterator[Path]:
    """A checkpoint to measure with: in the given folder, written if it is empty, or in a temporary one.

    family: a key of `SHAPES`.
    """
    with tempfile.TemporaryDirectory() as temporary:
        place = folder or Path(temporary)
        if not (place / "config.json").exists():
            made = (smoke_shape(family), torch.float32) if smoke else (SHAPES[family], torch.bfloat16)
            write_checkpoint(place, *made)
        yield place


@contextmanager
def detector(*, smoke: bool) -> Iterator[Path]:
    """A layout detector with PP-DocLayoutV2's shape and random weights, in a temporary folder."""
    from transformers import PPDocLayoutV2Config, PPDocLayoutV2ForObjectDetection

    from tests.support.detectors import LABELS, make_detector

    with tempfile.TemporaryDirectory() as folder:
        if smoke:
            make_detector(Path(folder))
        else:
            names = dict(enumerate(LABELS))
            config = PPDocLayoutV2Config(
                id2label=names, class_thresholds=[0.5] * len(names), class_order=[number % 20 for number in names]
            )
            PPDocLayoutV2ForObjectDetection(config).save_pretrained(folder)
        yield Path(folder)


def write_checkpoint(folder: Path, shape: Architecture, dtype: torch.dtype) -> Path:
    """Write a checkpoint of this shape into `folder` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    _WORDS[shape.family](folder)
    limits = json.loads((QUICK_MODEL / "preprocessor_config.json").read_text())
    images, vision = shape.images, shape.vision
    limits |= {"min_pixels": images.min_pixels, "max_pixels": images.max_pixels}
    limits |= {"image_mean": images.mean, "image_std": images.std, "temporal_patch_size": vision.temporal_patch_size}
    (folder / "preprocessor_config.json").write_text(json.dumps(limits))
    with torch.device("meta"):
        config, empty = _MODELS[shape.family](shape, _config(shape, dtype))
    save_file(_random_weights(empty, dtype), folder / "model.safetensors", {"format": "pt"})
    end = {"eos_token_id": shape.language.vocab_size, "pad_token_id": 0, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(end))
    config.save_pretrained(folder)
    return folder


def _config(shape: Architecture, dtype: torch.dtype) -> dict[str, Any]:
    """What every family's config.json says in the same words, but for the ViT."""
    sample = json.loads((QUICK_MODEL / "config.json").read_text())
    special = {name: value for name, value in sample.items() if name.endswith("_token_id")}
    language = shape.language
    return special | {
        "tie_word_embeddings": language.tied_embeddings,
        "dtype": str(dtype).removeprefix("torch."),
        "text_config": {
            "hidden_size": language.width,
            "num_hidden_layers": language.num_layers,
            "num_attention_heads": language.num_heads,
            "num_key_value_heads": language.num_kv_heads,
            "intermediate_size": language.mlp_width,
            "vocab_size": language.vocab_size,
            "max_position_embeddings": language.max_positions,
            "rms_norm_eps": language.rms_norm_eps,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": language.rope_theta,
                "mrope_section": list(language.mrope_section),
            },
            "bos_token_id": None,
            "eos_token_id": None,
            "tie_word_embeddings": language.tied_embeddings,
        },
    }


def _qwen2_vl(shape: Architecture, config: dict[str, Any]) -> tuple[PreTrainedConfig, dict[str, Tensor]]:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    vision = shape.vision
    seen = {
        "depth": vision.depth,
        "embed_dim": vision.width,
        "num_heads": vision.num_heads,
        "mlp_ratio": vision.mlp_width // vision.width,
        "hidden_size": vision.out_width,
    }
    whole = Qwen2VLConfig(**config, vision_config=seen, architectures=["Qwen2VLForConditionalGeneration"])
    empty = Qwen2VLForConditionalGeneration(whole).state_dict()
    del empty["lm_head.weight"]  # tied
    old = (("model.visual.", "visual."), ("model.language_model.", "model."))  # as on the hub
    return whole, {name.replace(*old[0]).replace(*old[1]): tensor for name, tensor in empty.items()}


def _copy_words(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(QUICK_MODEL / name, folder / name)


def _glm_ocr(shape: Architecture, config: dict[str, Any]) -> tuple[PreTrainedConfig, dict[str, Tensor]]:
    from transformers import GlmOcrConfig, GlmOcrForConditionalGeneration

    vision = shape.vision
    seen = {
        "depth": vision.depth,
        "hidden_size": vision.width,
        "num_heads": vision.num_heads,
        "intermediate_size": vision.mlp_width,
        "out_hidden_size": vision.out_width,
        "rms_norm_eps": vision.norm_eps,
    }
    config["text_config"]["head_dim"] = shape.language.head_dim
    config["image_token_id"] = glm_tokenizer().convert_tokens_to_ids(IMAGE)
    whole = GlmOcrConfig(**config, vision_config=seen, architectures=["GlmOcrForConditionalGeneration"])
    return whole, GlmOcrForConditionalGeneration(whole).state_dict()


def _paddleocr_vl(shape: Architecture, config: dict[str, Any]) -> tuple[PreTrainedConfig, dict[str, Tensor]]:
    from transformers import PaddleOCRVLConfig, PaddleOCRVLForConditionalGeneration

    vision = shape.vision
    seen = {
        "num_hidden_layers": vision.depth,
        "hidden_size": vision.width,
        "num_attention_heads": vision.num_heads,
        "intermediate_size": vision.mlp_width,
        "image_size": vision.positions_side * vision.patch_size,
    }
    config["text_config"]["head_dim"] = shape.language.head_dim
    config["image_token_id"] = paddle_tokenizer().convert_tokens_to_ids(PADDLE_IMAGE)
    whole = PaddleOCRVLConfig(**config, vision_config=seen, architectures=["PaddleOCRVLForConditionalGeneration"])
    empty = PaddleOCRVLForConditionalGeneration(whole).state_dict()
    old = (("model.visual.", "visual."), ("model.projector.", "mlp_AR."), ("model.language_model.", "model."))
    return whole, {reduce(lambda name, each: name.replace(*each), old, name): tensor for name, tensor in empty.items()}


_WORDS = {
    USUAL: _copy_words,
    "glm_ocr": lambda folder: glm_tokenizer().save_pretrained(folder),
    "paddleocr_vl": lambda folder: paddle_tokenizer().save_pretrained(folder),
}
"""Writes a tokenizer with the family's chat template."""
_MODELS = {USUAL: _qwen2_vl, "glm_ocr": _glm_ocr, "paddleocr_vl": _paddleocr_vl}
"""The configuration, and a tensor without values for each name that is stored."""


def _random_weights(empty: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """A tensor for each of these names, of its shape.

    Values are copied from random places in one pool: drawing 1.2 billion of them takes a minute, copying them a second.
    """
    generator = torch.Generator().manual_seed(0)
    largest = max(tensor.numel() for tensor in empty.values())
    pool = (WEIGHT_STD * torch.randn(min(_POOL_VALUES, 2 * largest), generator=generator)).to(dtype)
    weights = {}
    for name, tensor in empty.items():
        if tensor.dim() == 1:
            fill = torch.zeros if name.endswith("bias") else torch.ones
            weights[name] = fill(tensor.shape, dtype=dtype)
        else:
            weights[name] = _cut(pool, tensor.numel(), generator).view(tensor.shape)
    return weights


def _cut(pool: Tensor, count: int, generator: torch.Generator) -> Tensor:
    parts = []
    while count:
        start = int(torch.randint(len(pool) // 2, (), generator=generator))
        parts.append(pool[start : start + min(count, len(pool) - start)])
        count -= len(parts[-1])
    return torch.cat(parts)
