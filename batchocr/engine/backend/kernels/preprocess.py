"""Turns pixels on the host into patches on the GPU: a batch of images of any sizes, byte for byte as Pillow does.

There is one launch per pass over the batch, usually two: the first resizes one side, the second resizes the other and
cuts into patches.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from batchocr.engine.backend.base import ResizePlan
from batchocr.engine.backend.kernels.launch import Constants, kernel
from batchocr.engine.backend.kernels.resize_plan import CHANNELS, plan_batch
from batchocr.engine.backend.resize import PRECISION_BITS

# Eight values for each of 128 threads, so that many loads are in flight.
TILE = 1024


def patches(
    images: Sequence[Tensor], plans: Sequence[ResizePlan], patch_size: int, merge_size: int, device: torch.device
) -> Tensor:
    """Resize each image and cut it into patches; see `Ops.patches`.

    images: uint8 [height, width, 3] on the host, fewer than 2^31 values each before and after every pass. Returns uint8
    [total patches, 3 · patch_size²] on the device.

    Each pass reads its source and writes its result; each value is computed from 4 or 5 others, or more if the image
    shrinks, but the cache absorbs that. 3840 × 2160 to 1036 × 1036 px: 25 + 7 MB, then 7 + 3 MB.
    """
    batch = plan_batch([(image.shape[0], image.shape[1]) for image in images], plans, TILE)
    source, table = _upload_pixels(images, device), _upload(batch.table, device)
    scratch = torch.empty(batch.scratch_bytes, dtype=torch.uint8, device=device)
    out = torch.empty(batch.patch_bytes, dtype=torch.uint8, device=device)
    for launch in batch.launches:
        passes, tiles = _upload(launch.passes, device), _upload(launch.tiles, device)
        constants = _constants(patch_size, merge_size, passes.shape[1], TILE)
        _resize_kernel.launch((len(tiles), 1, 1), (source, scratch, out, passes, tiles, table), (), (), constants)
        source = scratch
    return out.view(-1, CHANNELS * patch_size**2)


@functools.cache
def _constants(patch_size: int, merge_size: int, fields: int, tile: int) -> Constants:
    model = {"CHANNELS": CHANNELS, "PATCH_SIZE": patch_size, "MERGE_SIZE": merge_size}
    bits = {"PRECISION_BITS": PRECISION_BITS, "FIELDS": fields, "TILE": tile}
    return Constants(**model, **bits, num_warps=4, enable_fp_fusion=True)


def _upload_pixels(images: Sequence[Tensor], device: torch.device) -> Tensor:
    """The pixels of all images, one after the other, on the device: uint8 [values]."""
    num_values = sum(image.numel() for image in images)
    staging = torch.empty(num_values, dtype=torch.uint8, pin_memory=device.type == "cuda")
    torch.cat([image.flatten() for image in images], out=staging)
    # No wait is needed: torch reuses pinned memory only when the copies from it are done.
    return staging.to(device, non_blocking=True)


def _upload(array: NDArray[Any], device: torch.device) -> Tensor:
    host = torch.from_numpy(array)
    return (host.pin_memory() if device.type == "cuda" else host).to(device, non_blocking=True)


@kernel()
def _resize_kernel(
    source,
    scratch,
    out,
    passes,
    tiles,
    table,
    CHANNELS: tl.constexpr,
    PRECISION_BITS: tl.constexpr,
    PATCH_SIZE: tl.constexpr,
    MERGE_SIZE: tl.constexpr,
    FIELDS: tl.constexpr,
    TILE: tl.constexpr,
):
    """One tile of one pass. Grid: (tiles of all passes,), so that small images cost no more than their pixels.

    Neighbours in a tile are neighbours in the result. If rows are resized, they read neighbouring bytes; if columns
    are, a strip of one row: whole sectors either way, most of which are already in the cache.
    """
    # In the order of `resize_plan._describe`.
    tile = tl.program_id(0)
    passes += tl.load(tiles + tile) * FIELDS
    first_tile = tl.load(passes).to(tl.int32)
    source += tl.load(passes + 1)
    destination = tl.load(passes + 2)
    is_last = tl.load(passes + 3) != 0
    resizes_rows = tl.load(passes + 4) != 0
    source_row = tl.load(passes + 5).to(tl.int32) * CHANNELS
    source_size = tl.load(passes + 6).to(tl.int32)
    height = tl.load(passes + 7).to(tl.int32)
    width = tl.load(passes + 8).to(tl.int32)
    num_taps = tl.load(passes + 9).to(tl.int32)
    starts = table + tl.load(passes + 10)
    weights = table + tl.load(passes + 11)

    value = (tile - first_tile) * TILE + tl.arange(0, TILE)
    exists = value < height * width * CHANNELS
    if is_last:
        y, x, channel = _place_in_patches(value, width, CHANNELS, PATCH_SIZE, MERGE_SIZE)
    else:
        y = value // (width * CHANNELS)
        x = value // CHANNELS % width
        channel = value % CHANNELS
    position = tl.where(resizes_rows, y, x)
    size = tl.where(resizes_rows, height, width)
    start = tl.load(starts + position, mask=exists, other=0)
    step = tl.where(resizes_rows, source_row, CHANNELS)
    source += tl.where(resizes_rows, x * CHANNELS, y * source_row) + channel + start * step
    total = tl.full([TILE], 1 << (PRECISION_BITS - 1), tl.int32)
    for tap in range(num_taps):
        # A value near the end has fewer taps than most.
        pixel = tl.load(source + tap * step, mask=exists & (start + tap < source_size), other=0)
        total += pixel.to(tl.int32) * tl.load(weights + tap * size + position, mask=exists, other=0)
    result = tl.minimum(tl.maximum(total >> PRECISION_BITS, 0), 255).to(tl.uint8)
    if is_last:
        tl.store(out + destination + value, result, mask=exists)
    else:
        tl.store(scratch + destination + value, result, mask=exists)


@triton.jit
def _place_in_patches(value, width, CHANNELS: tl.constexpr, PATCH_SIZE: tl.constexpr, MERGE_SIZE: tl.constexpr):
    """Row, column and channel of the n-th value in patch order: merge squares, then channels in each patch."""
    patch = value // (CHANNELS * PATCH_SIZE * PATCH_SIZE)
    square = patch // (MERGE_SIZE * MERGE_SIZE)
    squares_in_row = width // (PATCH_SIZE * MERGE_SIZE)
    patch_y = square // squares_in_row * MERGE_SIZE + patch // MERGE_SIZE % MERGE_SIZE
    patch_x = square % squares_in_row * MERGE_SIZE + patch % MERGE_SIZE
    channel = value // (PATCH_SIZE * PATCH_SIZE) % CHANNELS
    y = patch_y * PATCH_SIZE + value // PATCH_SIZE % PATCH_SIZE
    return y, patch_x * PATCH_SIZE + value % PATCH_SIZE, channel
