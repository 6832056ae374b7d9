"""Tiny checkpoints of real shape with random weights, and transformers' model of them as the oracle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLForConditionalGeneration

from batchocr.data import Completion
from batchocr.engine.engine import Engine
from batchocr.engine.model.prompt import PromptFormat
from batchocr.processes.engine_messages import EngineLimits
from batchocr.processes.meter import Meter

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class TokenIdFormat(PromptFormat):
    """Shows an answer's token ids as they are, so that no two answers look alike."""

    def decode(self, token_ids: Sequence[int]) -> str:
        return " ".join(map(str, token_ids))


@dataclass(frozen=True)
class Shape:
    """The unusual dimensions of a tiny model."""

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    mrope: tuple[int, int, int] = (2, 3, 3)
    layers: int = 2
    vision_heads: int = 2
    vision_head_dim: int = 8
    vision_depth: int = 2
    patch_size: int = 14
    merge_size: int = 2
    tied: bool = True
    flat_config: bool = False
    old_names: bool = False


SHAPES = {
    "grouped heads": Shape(),
    "one KV head, root config, untied": Shape(
        heads=6, kv_heads=1, head_dim=8, mrope=(1, 1, 2), tied=False, flat_config=True, old_names=True
    ),
    "all KV heads, wide vision heads, small patches": Shape(
        heads=3, kv_heads=3, head_dim=20, mrope=(4, 2, 4), vision_heads=3, vision_head_dim=20, patch_size=10
    ),
}


def tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, *SPECIAL_TOKENS])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    fast.add_special_tokens({"additional_special_tokens": SPECIAL_TOKENS})
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_checkpoint(folder: Path, shape: Shape = SHAPES["grouped heads"], seed: int = 0) -> Path:
    """Write a checkpoint as transformers would, or in the form of older ones on the hub, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = tokenizer()
    words.save_pretrained(folder)
    width = shape.heads * shape.head_dim
    config = Qwen2VLConfig(
        text_config={
            "hidden_size": width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "intermediate_size": 2 * width,
            "vocab_size": len(words),
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": list(shape.mrope)},
            "bos_token_id": None,
            "eos_token_id": words.convert_tokens_to_ids("<|im_end|>"),
            "tie_word_embeddings": shape.tied,
        },
        vision_config={
            "depth": shape.vision_depth,
            "embed_dim": shape.vision_heads * shape.vision_head_dim,
            "num_heads": shape.vision_heads,
            "mlp_ratio": 2,
            "hidden_size": width,
            "patch_size": shape.patch_size,
            "spatial_merge_size": shape.merge_size,
        },
        image_token_id=words.convert_tokens_to_ids("<|image_pad|>"),
        tie_word_embeddings=shape.tied,
    )
    torch.manual_seed(seed)
    model = Qwen2VLForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            # Wide enough that images matter and answers differ.
            parameter.data.normal_(std=2.0 * parameter[0].numel() ** -0.5)
    model.generation_config.eos_token_id = words.convert_tokens_to_ids("<|im_end|>")
    model.generation_config.pad_token_id = words.convert_tokens_to_ids("<|endoftext|>")
    model.save_pretrained(folder)
    limits = {"min_pixels": 3136, "max_pixels": 200_000}
    sizes = limits if shape.flat_config else {"size": {"shortest_edge": 3136, "longest_edge": 200_000}}
    preprocessor = {"patch_size": shape.patch_size, "merge_size": shape.merge_size, "temporal_patch_size": 2, **sizes}
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    if shape.flat_config:
        _flatten_config(folder / "config.json")
    if shape.old_names:
        _rename_tensors(folder / "model.safetensors")
    return folder


def _flatten_config(path: Path) -> None:
    config: dict[str, Any] = json.loads(path.read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    text.pop("model_type", None)
    config |= text | {
        "model_type": "qwen2_vl",
        "rope_theta": rope["rope_theta"],
        "rope_scaling": {"type": "mrope", "mrope_section": rope["mrope_section"]},
    }
    vision = config["vision_config"]
    vision["in_chans"] = vision.pop("in_channels", 3)
    path.write_text(json.dumps(config))


def _rename_tensors(path: Path) -> None:
    renamed = {
        name.replace("model.visual.", "visual.").replace("model.language_model.", "model."): tensor
        for name, tensor in load_file(path).items()
    }
    save_file(renamed, path, metadata={"format": "pt"})


def oracle(folder: Path) -> Qwen2VLForConditionalGeneration:
    """transformers' own model of a checkpoint, in float32."""
    return Qwen2VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()


SMALL_LIMITS = EngineLimits(
    vit_batch_size=3,
    vit_max_patches=3000,
    embedding_queue_tokens=500,
    llm_batch_size=4,
    prefill_max_tokens=700,
    max_new_tokens=34,
    num_kv_tokens=8000,
)
"""For engines that read these checkpoints."""


def answers_of(engine: Engine, meter: Meter | None = None) -> dict[int, Completion]:
    """Step until every request has ended, each once."""
    answers: dict[int, Completion] = {}
    while engine.has_work:
        for number, completion in engine.step(meter or Meter()):
            assert number not in answers, "a request was answered twice"
            answers[number] = completion
    return answers
