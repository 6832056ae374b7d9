"""How far the answers of a model with a lever are from those of the model as it is."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from batchocr.engine.model.checkpoint import Model
from benchmarks.gpu.model_check import our_logits
from benchmarks.gpu.production_check import answers
from benchmarks.record import Row
from benchmarks.trace import LAYOUT_SIZE, Noise, Trace, TracePage, dense_trace
from tests.support.checkpoints import TokenIdFormat
from tests.support.whole_vit import encode

_GIVEN_TOKENS = 24
_ANSWER_TOKENS = 32


class Answers:
    """Those of the model as it is, to compare others with."""

    SAME: ClassVar[Row] = {"embeddings off": None, "logits off": None, "same tokens": None}
    """For what is not compared: another schedule of the same model, which `production_check` is for."""

    def __init__(self, model: Model, folder: Path, *, smoke: bool) -> None:
        side, most_tokens = (84, 4) if smoke else (LAYOUT_SIZE, _ANSWER_TOKENS)
        self._model = model
        self._folder = folder
        self._pixels = Noise().pixels(side, side)
        self._tokens = torch.randint(0, 400, (_GIVEN_TOKENS,), generator=torch.Generator().manual_seed(0)).tolist()
        layout, *blocks = dense_trace(1).pages[0].asks[:8]
        asks = [replace(ask, output_tokens=min(ask.output_tokens, most_tokens)) for ask in (layout, *blocks)]
        trace = Trace((TracePage(asks[0], tuple(asks[1:])),))
        self._trace = trace.shrunk(0.1) if smoke else trace

    @cached_property
    def _expected(self) -> tuple[Tensor, Tensor, list[str]]:
        return self._of(self._model)

    def compared(self, model: Model) -> Row:
        """Columns: how far this model's answers are off."""
        (embeddings, logits, texts), expected = self._of(model), self._expected
        same = sum(ours == wanted for ours, wanted in zip(texts, expected[2], strict=True))
        return {
            "embeddings off": _relative(embeddings, expected[0]),
            "logits off": _relative(logits, expected[1]),
            "same tokens": same / len(texts),
        }

    @torch.inference_mode()
    def _of(self, model: Model) -> tuple[Tensor, Tensor, list[str]]:
        """Embeddings of a page, logits for given tokens behind it, and what the engine answers to a few requests."""
        with model.device.main():
            grid = model.preprocessor.patch_grid(self._pixels.height, self._pixels.width, None)
            embeddings = encode(model.vision, model.preprocessor.patches([(self._pixels, None)]), [grid]).float().cpu()
        logits = our_logits(model, self._pixels, self._tokens)
        shown = replace(model, prompts=TokenIdFormat(self._folder, model.architecture))
        completions = answers(shown, model.device, self._trace)
        return embeddings, logits, [completion.text for completion in completions]


def _relative(values: Tensor, expected: Tensor) -> float:
    return float((values - expected).norm() / expected.norm())
