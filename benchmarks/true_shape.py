"""A checkpoint with MinerU2.5's shape and random weights: it cannot read, but every step takes as long.

Its end token is outside its vocabulary, so an answer has `max_new_tokens` tokens in any engine, and all engines do the
same work. It takes 2.3 GB in bfloat16. Tokenizer and chat template are those of `tests/support/quick_model`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from batchocr.model.architecture import Architecture, read_architecture
from benchmarks import QUICK_MODEL

WEIGHT_STD = 0.02
_POOL_VALUES = 1 << 25
_COPIED = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@dataclass(frozen=True, slots=True)
class ModelShape:
    """MinerU2.5's dimensions. dtype: of the stored weights."""

    vision_depth: int = 32
    vision_width: int = 1280
    vision_heads: int = 16
    vision_mlp_ratio: int = 4
    layers: int = 24
    width: int = 896
    heads: int = 14
    kv_heads: int = 2
    mlp_width: int = 4864
    vocab_size: int = 151_936
    max_pixels: int = 1_605_632
    dtype: torch.dtype = torch.bfloat16

    @property
    def mrope_section(self) -> list[int]:
        """Two, three and three eighths of a head's frequencies."""
        half = self.width // self.heads // 2
        return [half // 4, 3 * half // 8, half - half // 4 - 3 * half // 8]


TRUE_SHAPE = ModelShape()
SMOKE_SHAPE = ModelShape(
    vision_depth=1,
    vision_width=64,
    vision_heads=2,
    layers=1,
    width=64,
    heads=2,
    kv_heads=1,
    mlp_width=96,
    vocab_size=1024,
    max_pixels=100_000,
    dtype=torch.float32,
)


def architecture_of(shape: ModelShape) -> Architecture:
    """What a checkpoint of this shape says of itself."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps({"model_type": "qwen2_vl", **_config(shape)}))
        _write_limits(folder, shape)
        return read_architecture(folder)


@contextmanager
def checkpoint(folder: Path | None, *, smoke: bool) -> Iterator[Path]:
    """A checkpoint to measure with: in the given folder, written if it is empty, or in a temporary one."""
    shape = SMOKE_SHAPE if smoke else TRUE_SHAPE
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:
            yield write_checkpoint(Path(temporary), shape)
    else:
        yield folder if (folder / "config.json").exists() else write_checkpoint(folder, shape)


def write_checkpoint(folder: Path, shape: ModelShape, seed: int = 0) -> Path:
    """Write a checkpoint of this shape into `folder` and return it."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    folder.mkdir(parents=True, exist_ok=True)
    for name in _COPIED:
        shutil.copy(QUICK_MODEL / name, folder / name)
    _write_limits(folder, shape)
    config = Qwen2VLConfig(**_config(shape), architectures=["Qwen2VLForConditionalGeneration"])
    with torch.device("meta"):
        empty = Qwen2VLForConditionalGeneration(config).state_dict()
    save_file(_random_weights(empty, shape, seed), folder / "model.safetensors", {"format": "pt"})
    end = {"eos_token_id": shape.vocab_size, "pad_token_id": 0, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(end))
    config.save_pretrained(folder)
    return folder


def _write_limits(folder: Path, shape: ModelShape) -> None:
    limits = json.loads((QUICK_MODEL / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps(limits | {"max_pixels": shape.max_pixels}))


def _config(shape: ModelShape) -> dict[str, object]:
    sample = json.loads((QUICK_MODEL / "config.json").read_text())
    special = {name: value for name, value in sample.items() if name.endswith("_token_id")}
    rope = {"rope_type": "default", "rope_theta": 1_000_000.0, "mrope_section": shape.mrope_section}
    return special | {
        "tie_word_embeddings": True,
        "dtype": str(shape.dtype).removeprefix("torch."),
        "text_config": {
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "intermediate_size": shape.mlp_width,
            "vocab_size": shape.vocab_size,
            "max_position_embeddings": 32_768,
            "rms_norm_eps": 1e-6,
            "rope_parameters": rope,
            "bos_token_id": None,
            "eos_token_id": None,
            "tie_word_embeddings": True,
        },
        "vision_config": {
            "depth": shape.vision_depth,
            "embed_dim": shape.vision_width,
            "num_heads": shape.vision_heads,
            "mlp_ratio": shape.vision_mlp_ratio,
            "hidden_size": shape.width,
        },
    }


def _random_weights(empty: dict[str, Tensor], shape: ModelShape, seed: int) -> dict[str, Tensor]:
    """A tensor for each name, with the names of checkpoints on the hub, which every engine can read.

    Values are copied from random places in one pool: drawing 1.2 billion of them takes a minute, copying them a second.
    """
    generator = torch.Generator().manual_seed(seed)
    largest = max(tensor.numel() for tensor in empty.values())
    pool = (WEIGHT_STD * torch.randn(min(_POOL_VALUES, 2 * largest), generator=generator)).to(shape.dtype)
    weights = {}
    for name, tensor in empty.items():
        if name == "lm_head.weight":
            continue
        name = name.replace("model.visual.", "visual.").replace("model.language_model.", "model.")
        if tensor.dim() == 1:
            fill = torch.zeros if name.endswith("bias") else torch.ones
            weights[name] = fill(tensor.shape, dtype=shape.dtype)
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
