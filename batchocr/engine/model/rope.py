"""Rotary positions: the ViT's in two dimensions, the language model's in three (M-RoPE)."""

from __future__ import annotations

import torch
from torch import Tensor


def inverse_frequencies(dim: int, theta: float, device: torch.device) -> Tensor:
    """theta^(-2i/dim) for i in 0 … dim/2 - 1. Returns float32 [dim / 2]."""
    return 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim))


def vision_positions(grid_h: int, grid_w: int, merge_size: int) -> Tensor:
    """Row and column of every patch, in patch order: merge squares, each contiguous.

    Returns int64 [grid_h * grid_w, 2] on the host.
    """
    rows = torch.arange(grid_h).view(grid_h, 1).expand(grid_h, grid_w)
    columns = torch.arange(grid_w).view(1, grid_w).expand(grid_h, grid_w)
    squares = torch.stack([rows, columns], dim=-1).view(
        grid_h // merge_size, merge_size, grid_w // merge_size, merge_size, 2
    )
    return squares.transpose(1, 2).reshape(-1, 2)


def mrope_positions(prompt_length: int, image_start: int, grid_h: int, grid_w: int) -> Tensor:
    """Positions of a prompt with one image. Text advances in all three dimensions at once; the image's tokens share one
    step in time and add their row and column; text continues after the larger of the image's height and width.

    image_start: index of the first image token. grid_h, grid_w: the image's grid in merged units.
    Returns int64 [3, prompt_length] on the host: time, height, width.
    Source: Qwen2-VL, section 2.1; transformers' `get_rope_index`.
    """
    num_image_tokens = grid_h * grid_w
    image = torch.empty(3, num_image_tokens, dtype=torch.int64)
    image[0] = image_start
    image[1] = image_start + torch.arange(grid_h).repeat_interleave(grid_w)
    image[2] = image_start + torch.arange(grid_w).repeat(grid_h)
    before = torch.arange(image_start).expand(3, -1)
    after = image_start + max(grid_h, grid_w) + torch.arange(prompt_length - image_start - num_image_tokens)
    return torch.cat([before, image, after.expand(3, -1)], dim=1)


def mrope_dimensions(section: tuple[int, int, int], device: torch.device) -> Tensor:
    """Which position rotates each frequency: 0 time, 1 height, 2 width. Returns int64 [head_dim / 2]."""
    return torch.tensor([dimension for dimension, count in enumerate(section) for _ in range(count)], device=device)


def mrope_cos_sin(positions: Tensor, inv_freq: Tensor, dimensions: Tensor) -> tuple[Tensor, Tensor]:
    """Compute a step's tables once, so that the layers apply plain rotary embedding.

    positions: int [3, tokens]. inv_freq, dimensions: [head_dim / 2]. Returns float32 cos, sin, each
    [tokens, head_dim / 2].
    """
    angles = positions.to(torch.float32).t()[:, dimensions] * inv_freq
    return angles.cos(), angles.sin()
