"""Tiny GLM-OCR checkpoints with random weights, and transformers' model of them as the oracle."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GlmOcrConfig, GlmOcrForConditionalGeneration, PreTrainedTokenizerFast

IMAGE = "<|image|>"
STOPS = ["<|endoftext|>", "<|user|>"]
SPECIAL_TOKENS = [*STOPS, "[gMASK]", "<sop>", "<|assistant|>", "<|system|>", "<|begin_of_image|>", IMAGE]
SPECIAL_TOKENS += ["<|end_of_image|>"]
CHAT_TEMPLATE = (
    "[gMASK]<sop>{% for message in messages %}<|{{ message['role'] }}|>\n{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|begin_of_image|><|image|><|end_of_image|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@dataclass(frozen=True)
class GlmShape:
    """The unusual dimensions of a tiny model."""

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    width: int = 48
    mrope: tuple[int, int, int] = (2, 3, 3)
    vision_heads: int = 5
    vision_head_dim: int = 8
    with_surplus: bool = True


GLM_SHAPES = {
    "wider heads than the model": GlmShape(),
    "one KV head": GlmShape(heads=3, kv_heads=1, head_dim=8, width=40, mrope=(1, 1, 2), with_surplus=False),
    "as many KV heads": GlmShape(heads=2, kv_heads=2, head_dim=20, width=24, mrope=(4, 2, 4), vision_heads=2),
}


def glm_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, *SPECIAL_TOKENS])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=STOPS[0], pad_token=STOPS[0], padding_side="left")
    fast.add_special_tokens({"additional_special_tokens": SPECIAL_TOKENS})
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_glm_checkpoint(folder: Path, shape: GlmShape | None = None, seed: int = 0) -> Path:
    """Write a checkpoint as transformers would, with the layer for several tokens at once that is published with the
    model and not used, and return its folder."""
    shape = shape or GlmShape()
    folder.mkdir(parents=True, exist_ok=True)
    words = glm_tokenizer()
    words.save_pretrained(folder)
    stops = words.convert_tokens_to_ids(STOPS)
    config = GlmOcrConfig(
        text_config={
            "hidden_size": shape.width,
            "num_hidden_layers": 2,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "intermediate_size": 72,
            "vocab_size": len(words),
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": list(shape.mrope),
                "partial_rotary_factor": 1.0,
            },
            "eos_token_id": stops,
            "pad_token_id": stops[0],
        },
        vision_config={
            "depth": 2,
            "hidden_size": shape.vision_heads * shape.vision_head_dim,
            "num_heads": shape.vision_heads,
            "intermediate_size": 56,
            "out_hidden_size": shape.width,
            "image_size": 42,
        },
        image_token_id=words.convert_tokens_to_ids(IMAGE),
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    model = GlmOcrForConditionalGeneration(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:  # wide enough that images matter and answers differ
            parameter.data.normal_(std=2.0 * parameter[0].numel() ** -0.5)
        else:
            parameter.data.normal_(mean=float("norm" in name and name.endswith("weight")), std=0.1)
    model.generation_config.eos_token_id = stops
    model.generation_config.pad_token_id = stops[0]
    model.save_pretrained(folder)
    if shape.with_surplus:
        weights = load_file(folder / "model.safetensors")
        weights |= {"model.language_model.layers.2.eh_proj.weight": torch.ones(2, 2)}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    sizes = {"size": {"shortest_edge": 12544, "longest_edge": 400_000}}
    preprocessor = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, **sizes}
    (folder / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    return folder


def glm_oracle(folder: Path) -> GlmOcrForConditionalGeneration:
    """transformers' own model of a checkpoint, in float32."""
    return GlmOcrForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
