"""The options that several benchmarks share, and what they stand for."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.trace import Trace, dense_trace
from benchmarks.true_shape import SHAPES, USUAL

PEAK_TFLOPS = 790.0
"""Measured on an H200 in bfloat16; products reached 782 on an H100."""
_SMOKE_FACTOR = 0.1
_SMOKE_PAGES = 2
_SIZES = ("vit_batch_size", "vit_max_patches", "llm_batch_size", "prefill_max_tokens", "embedding_queue_tokens")


def add_checkpoint_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the model to measure with."""
    parser.add_argument("--checkpoint", type=Path, help="folder of a checkpoint, made there if empty (true_shape.py)")


def add_family_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the family of the model that is made."""
    parser.add_argument(
        "--family", choices=tuple(SHAPES), default=USUAL, help="of the model, where its checkpoint is made"
    )


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add options for the model and for the engine's sizes, which default to the product's."""
    add_checkpoint_option(parser)
    for name in _SIZES:
        parser.add_argument("--" + name.replace("_", "-"), type=int)


def add_trace_options(parser: argparse.ArgumentParser, *, pages: int) -> None:
    """Add options for the model, the engine, and the number of dense pages to replay."""
    add_engine_options(parser)
    parser.add_argument("--pages", type=int, default=pages)
    parser.add_argument("--pages-in-flight", type=int, help="default: as a run with 8 workers, by --llm-batch-size")


def engine_options(given: argparse.Namespace) -> dict[str, int | None]:
    """The engine's sizes as given, by their names in Config; with --smoke, the KV cache is kept small."""
    return {name: getattr(given, name) for name in _SIZES} | ({"max_new_tokens": 512} if given.smoke else {})


def given_trace(given: argparse.Namespace) -> Trace:
    """The trace to replay; with --smoke, a few tiny pages."""
    return dense_trace(_SMOKE_PAGES).shrunk(_SMOKE_FACTOR) if given.smoke else dense_trace(given.pages)


def peak_tflops(device_type: str) -> float | None:
    """The device's peak, if known: any GPU is assumed to be an H100 or H200."""
    return PEAK_TFLOPS if device_type == "cuda" else None


def numbers(text: str) -> list[int]:
    """The numbers in `1,4,16`."""
    return [int(part) for part in text.split(",")]
