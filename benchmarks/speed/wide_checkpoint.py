"""The quick model of the tests at MinerU2.5's true layer widths: the same answers, from matrices of the real sizes.

A checkpoint with random weights would not get past the layout. This one repeats the quick model's hidden state until it
is as wide as the real one, which does not affect norms, and sets the additional heads and MLP units to zero: every
matrix product has the size it has in MinerU2.5, and the answers are those of the quick model.

Rotary frequencies are theta^(-2i / head_dim), so a head k times as wide has the narrow head's at every k-th place.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

VISION_WIDTH, VISION_HEADS, VISION_MLP = 1280, 16, 5120
TEXT_WIDTH, TEXT_HEADS, TEXT_KV_HEADS, TEXT_MLP, VOCABULARY = 896, 14, 2, 4864, 151_936


def make_wide_checkpoint(narrow: Path, folder: Path) -> Path:
    """Write the wide twin of the quick model into `folder` and return it."""
    shutil.copytree(narrow, folder, dirs_exist_ok=True)
    config = json.loads((narrow / "config.json").read_text())
    text, vision = config["text_config"], config["vision_config"]
    tensors = load_file(narrow / "model.safetensors")
    wide = {}
    for name, tensor in tensors.items():
        tensor = tensor.float()
        wide[name] = _vision(name, tensor, vision) if "visual." in name else _text(name, tensor, text)
    save_file(
        {name: tensor.contiguous() for name, tensor in wide.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    sections = text["rope_parameters"]["mrope_section"]
    text["rope_parameters"]["mrope_section"] = [section * _head_ratio(text) for section in sections]
    text |= {
        "hidden_size": TEXT_WIDTH,
        "num_attention_heads": TEXT_HEADS,
        "num_key_value_heads": TEXT_KV_HEADS,
        "intermediate_size": TEXT_MLP,
        "vocab_size": VOCABULARY,
    }
    vision |= {"embed_dim": VISION_WIDTH, "num_heads": VISION_HEADS, "mlp_ratio": 4, "hidden_size": TEXT_WIDTH}
    config["dtype"] = "float32"
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return folder


def _head_ratio(text: dict[str, int]) -> int:
    return (TEXT_WIDTH // TEXT_HEADS) * text["num_attention_heads"] // text["hidden_size"]


def _repeat(tensor: Tensor, dim: int, size: int, *, reads: bool) -> Tensor:
    """Repeat a dimension of the hidden state; if the matrix reads it, divide by the number of copies."""
    copies = size // tensor.shape[dim]
    repeated = torch.cat([tensor] * copies, dim)
    return repeated / copies if reads else repeated


def _place(tensor: Tensor, dim: int, size: int, places: Tensor) -> Tensor:
    """Put the entries of a dimension at these indices of a larger one that is zero elsewhere."""
    shape = list(tensor.shape)
    shape[dim] = size
    return torch.zeros(shape).index_copy_(dim, places, tensor)


def _head_places(heads: list[int], narrow_dim: int, wide_dim: int, parts: int) -> Tensor:
    """The indices for the values of narrow heads. parts: the number of equal runs of frequencies in a head."""
    run, ratio = narrow_dim // parts, wide_dim // narrow_dim
    inside = torch.cat([part * (wide_dim // parts) + ratio * torch.arange(run) for part in range(parts)])
    return torch.cat([head * wide_dim + inside for head in heads])


def _vision(name: str, tensor: Tensor, vision: dict[str, int]) -> Tensor:
    narrow_dim, wide_dim = vision["embed_dim"] // vision["num_heads"], VISION_WIDTH // VISION_HEADS
    # A head's halves are rotated against each other, and each half has separate frequencies for rows and columns.
    places = _head_places(list(range(vision["num_heads"])), narrow_dim, wide_dim, 4)
    if "attn.qkv" in name:
        q, k, v = tensor.chunk(3)
        q = q * (wide_dim / narrow_dim) ** 0.5
        tensor = torch.cat([_place(part, 0, VISION_WIDTH, places) for part in (q, k, v)])
        return _repeat(tensor, 1, VISION_WIDTH, reads=True) if tensor.dim() > 1 else tensor
    if name.endswith("attn.proj.weight"):
        return _repeat(_place(tensor, 1, VISION_WIDTH, places), 0, VISION_WIDTH, reads=False)
    if "mlp.fc1" in name or "merger.mlp.0" in name:
        hidden = VISION_MLP if "fc1" in name else 4 * VISION_WIDTH
        tensor = _place(tensor, 0, hidden, torch.arange(len(tensor)))
        if tensor.dim() == 1:
            return tensor
        if "merger" in name:  # reads four patches, each repeated on its own
            patches = [_repeat(patch, 1, VISION_WIDTH, reads=True) for patch in tensor.chunk(4, dim=1)]
            return torch.cat(patches, dim=1)
        return _repeat(tensor, 1, VISION_WIDTH, reads=True)
    if name.endswith(("mlp.fc2.weight", "merger.mlp.2.weight")):
        hidden, out = (4 * VISION_WIDTH, TEXT_WIDTH) if "merger" in name else (VISION_MLP, VISION_WIDTH)
        return _repeat(_place(tensor, 1, hidden, torch.arange(tensor.shape[1])), 0, out, reads=False)
    return _repeat(tensor, 0, TEXT_WIDTH if "merger.mlp.2" in name else VISION_WIDTH, reads=False)


def _text(name: str, tensor: Tensor, text: dict[str, int]) -> Tensor:
    narrow_dim, wide_dim = text["hidden_size"] // text["num_attention_heads"], TEXT_WIDTH // TEXT_HEADS
    group, wide_group = text["num_attention_heads"] // text["num_key_value_heads"], TEXT_HEADS // TEXT_KV_HEADS
    query_heads = [head // group * wide_group + head % group for head in range(text["num_attention_heads"])]
    query_places = _head_places(query_heads, narrow_dim, wide_dim, 2)
    kv_places = _head_places(list(range(text["num_key_value_heads"])), narrow_dim, wide_dim, 2)
    if "embed_tokens" in name:
        return _repeat(_place(tensor, 0, VOCABULARY, torch.arange(len(tensor))), 1, TEXT_WIDTH, reads=False)
    if "q_proj" in name or "k_proj" in name or "v_proj" in name:
        if "q_proj" in name:
            tensor = _place(tensor * (wide_dim / narrow_dim) ** 0.5, 0, TEXT_HEADS * wide_dim, query_places)
        else:
            tensor = _place(tensor, 0, TEXT_KV_HEADS * wide_dim, kv_places)
        return _repeat(tensor, 1, TEXT_WIDTH, reads=True) if tensor.dim() > 1 else tensor
    if "o_proj" in name:
        return _repeat(_place(tensor, 1, TEXT_HEADS * wide_dim, query_places), 0, TEXT_WIDTH, reads=False)
    if "gate_proj" in name or "up_proj" in name:
        return _repeat(_place(tensor, 0, TEXT_MLP, torch.arange(len(tensor))), 1, TEXT_WIDTH, reads=True)
    if "down_proj" in name:
        return _repeat(_place(tensor, 1, TEXT_MLP, torch.arange(tensor.shape[1])), 0, TEXT_WIDTH, reads=False)
    return _repeat(tensor, 0, TEXT_WIDTH, reads=False)
