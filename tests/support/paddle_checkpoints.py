"""Tiny PaddleOCR-VL checkpoints with random weights, and transformers' model of them as the oracle."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PaddleOCRVLConfig, PaddleOCRVLForConditionalGeneration, PreTrainedTokenizerFast

IMAGE = "<|IMAGE_PLACEHOLDER|>"
START = "<|begin_of_sentence|>"
SPECIAL_TOKENS = ["<unk>", "<s>", "</s>", START, "<|IMAGE_START|>", IMAGE, "<|IMAGE_END|>"]
CHAT_TEMPLATE = (
    "{{- cls_token -}}{%- for message in messages -%}{{- 'User: ' -}}{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'image' -%}{{ '<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>' }}{%- endif -%}"
    "{%- endfor -%}{%- for part in message['content'] -%}{%- if part['type'] == 'text' -%}{{ part['text'] }}"
    "{%- endif -%}{%- endfor -%}{{ '\\n' -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- 'Assistant:LAST' -}}"
    "{%- endif -%}"
)
Version = Literal["1.0", "1.5"]
ENDS: dict[Version, str] = {"1.0": " ", "1.5": "\\n"}


@dataclass(frozen=True)
class PaddleShape:
    """The unusual dimensions of a tiny model, and how it is stored."""

    version: Version = "1.5"
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    width: int = 48
    mrope: tuple[int, int, int] = (2, 3, 3)
    vision_heads: int = 3
    vision_head_dim: int = 24
    image_size: int = 50
    is_flat: bool = False
    is_tied: bool = False
    has_new_names: bool = False


PADDLE_SHAPES = {
    "published, flat": PaddleShape("1.0", is_flat=True),
    "tied": PaddleShape(heads=3, kv_heads=1, head_dim=8, width=40, mrope=(1, 1, 2), image_size=100, is_tied=True),
    "new names": PaddleShape(vision_heads=2, vision_head_dim=12, image_size=30, has_new_names=True),
}


def paddle_tokenizer(version: Version = "1.5") -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *alphabet])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    named = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>", "cls_token": START}
    fast = PreTrainedTokenizerFast(tokenizer_object=raw, padding_side="left", **named)
    fast.add_special_tokens({"additional_special_tokens": SPECIAL_TOKENS})
    fast.chat_template = CHAT_TEMPLATE.replace("LAST", ENDS[version])
    return fast


def make_paddle_checkpoint(folder: Path, shape: PaddleShape | None = None, seed: int = 0) -> Path:
    """Write a checkpoint as it is published, or as transformers would, and return its folder."""
    shape = shape or PaddleShape()
    folder.mkdir(parents=True, exist_ok=True)
    words = paddle_tokenizer(shape.version)
    words.save_pretrained(folder)
    torch.manual_seed(seed)
    model = PaddleOCRVLForConditionalGeneration(_config(shape, words)).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:  # wide enough that images matter and answers differ
            parameter.data.normal_(std=2.0 * parameter[0].numel() ** -0.5)
        else:
            parameter.data.normal_(mean=float("norm" in name and name.endswith("weight")), std=0.1)
    model.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    if not shape.is_tied:  # transformers stores none, as its configuration of the text says that they are tied
        weights["lm_head.weight"] = torch.randn(len(words), shape.width) * 2.0 * shape.width**-0.5
    if shape.is_flat:
        weights["visual.vision_model.embeddings.packing_position_embedding.weight"] = torch.ones(2, 2)
        weights["visual.vision_model.head.probe"] = torch.ones(1, 1, 2)
        config = json.loads((folder / "config.json").read_text())
        text = config.pop("text_config")
        rope = text.pop("rope_parameters")
        config |= {name: text[name] for name in text if name not in ("model_type", "tie_word_embeddings")}
        config |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope, "tie_word_embeddings": shape.is_tied}
        config["vision_config"] |= {"model_type": "paddleocr_vl", "temporal_patch_size": 2}
        (folder / "config.json").write_text(json.dumps(config))
    if shape.has_new_names:
        begin = {"visual.": "model.visual.", "mlp_AR.": "model.projector.", "model.": "model.language_model."}
        weights = {
            next((new + name.removeprefix(old) for old, new in begin.items() if name.startswith(old)), name): tensor
            for name, tensor in weights.items()
        }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    half = [0.5] * 3
    limits = {"min_pixels": 147_384, "max_pixels": 2_822_400}  # which the pipeline does not follow
    preprocessor = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 1, "image_mean": half, "image_std": half}
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor | limits))
    return folder


def _config(shape: PaddleShape, words: PreTrainedTokenizerFast) -> PaddleOCRVLConfig:
    text: dict[str, Any] = {
        "hidden_size": shape.width,
        "num_hidden_layers": 2,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": 72,
        "vocab_size": len(words),
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0, "mrope_section": list(shape.mrope)},
    }
    vision = {
        "num_hidden_layers": 2,
        "hidden_size": shape.vision_heads * shape.vision_head_dim,
        "num_attention_heads": shape.vision_heads,
        "intermediate_size": 56,
        "image_size": shape.image_size,
    }
    return PaddleOCRVLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=words.convert_tokens_to_ids(IMAGE),
        tie_word_embeddings=shape.is_tied,
    )


def paddle_oracle(folder: Path) -> PaddleOCRVLForConditionalGeneration:
    """transformers' own model of a checkpoint, in float32."""
    return PaddleOCRVLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
