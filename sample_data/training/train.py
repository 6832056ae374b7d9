"""The training run: lessons in, checkpoints and a loss curve out. It can be killed and gone on with."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sample_data.training.batches import Batch
from sample_data.training.heads import IGNORED, heads
from sample_data.training.lessons import Lesson, Plan, load_lessons
from sample_data.training.losses import losses
from sample_data.training.model import ReadingModel, Shape
from sample_data.training.optimizer import optimizers
from sample_data.training.progress import Examiner
from sample_data.training.vocabulary import Vocabulary

CHECKPOINT, CURVE = "checkpoint.pt", "curve.jsonl"
_LOG_EVERY = 20
_CHECKPOINT_SECONDS = 180
_MAX_GRADIENT = 1.0


@dataclass(frozen=True, slots=True)
class Setting:
    """A machine's way of training. decay_from: the share of the run after which the learning rate falls.

    layout_share: what a step's layouts count beside its texts; few pages are a noisy sample. num_workers: processes
    that make lessons. num_threads: batches of a lesson that are worked on at once. exam_every: steps. minutes: ends the
    run by the clock instead of by steps, at the price of not being reproducible.
    """

    plan: Plan
    steps: int
    muon_lr: float
    adam_lr: float
    layout_share: float
    num_workers: int
    num_threads: int
    exam_every: int
    warm_up: int = 20
    decay_from: float = 0.6
    last_lr: float = 0.02
    minutes: float | None = None


class Training:
    """A run in a folder. Its state is the model, its optimisers, the step and the seconds spent."""

    def __init__(
        self, setting: Setting, folder: Path, device: torch.device, *, seed: int, shape: Shape | None = None
    ) -> None:
        torch.manual_seed(seed)
        self.setting, self._folder, self._device, self._seed = setting, folder, device, seed
        self.vocabulary = Vocabulary()
        self._heads = heads(self.vocabulary.first_number)
        self.model = ReadingModel(shape or Shape(len(self.vocabulary)), self._heads).to(device)
        self._threads = ThreadPoolExecutor(setting.num_threads)
        self._optimizers = optimizers(self.model, setting.muon_lr, setting.adam_lr, self._threads)
        self._rates = [group["lr"] for optimizer in self._optimizers for group in optimizer.param_groups]
        self.step, self._seconds, self._samples = 0, 0.0, 0
        folder.mkdir(parents=True, exist_ok=True)

    def resume(self) -> None:
        """Go on from the folder's checkpoint."""
        state = torch.load(self._folder / CHECKPOINT, map_location=self._device, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self._seconds, self._samples = state["step"], state["seconds"], state["samples"]

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "step": self.step,
            "seconds": self._seconds,
            "samples": self._samples,
        }
        unfinished = self._folder / f"{CHECKPOINT}.unfinished"
        torch.save(state, unfinished)
        os.replace(unfinished, self._folder / CHECKPOINT)

    def run(self) -> None:
        """Train to the end of the run, with a line in the curve now and then, and a checkpoint every few minutes."""
        examiner = Examiner(self.vocabulary, self._device)
        lessons = self.lessons()
        began, saved = time.monotonic() - self._seconds, self._seconds
        recent: dict[str, list[float]] = defaultdict(list)
        while self.progress() < 1:
            found = self.learn(next(lessons))
            self._seconds = time.monotonic() - began
            for name, value in found.items():
                recent[name].append(value)
            if self.step % _LOG_EVERY == 0:
                self._log({name: sum(values) / len(values) for name, values in recent.items()})
                recent.clear()
            if self.step % self.setting.exam_every == 0:
                self._log(examiner(self.model))
            if self._seconds - saved > _CHECKPOINT_SECONDS:
                self.save()
                saved = self._seconds
        self._log(examiner(self.model))
        self.save()

    def lessons(self) -> Iterator[Lesson]:
        """Return the lessons from the next step on."""
        return load_lessons(self.setting.plan, self._seed, self.step, self.setting.num_workers)

    def learn(self, lesson: Lesson) -> dict[str, float]:
        """Take one step. Returns its losses, weighted; those of layouts end in `/layout`."""
        rate = self._learning_rate()
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        for group, peak in zip(groups, self._rates, strict=True):
            group["lr"] = peak * rate
        num_answers = [int((batch.answer != IGNORED).sum()) for batch in lesson]
        num_in_texts = sum(count for count, batch in zip(num_answers, lesson, strict=True) if not batch.is_layout)
        layout_share = self.setting.layout_share
        shares = [
            layout_share if batch.is_layout else count / num_in_texts
            for count, batch in zip(num_answers, lesson, strict=True)
        ]
        found: dict[str, float] = defaultdict(float)
        # Each batch on one core: two cores in every operation would wait for each other all the time.
        results = self._threads.map(self._gradients, lesson, shares)
        for batch, share, (parts, gradients) in zip(lesson, shares, results, strict=True):
            for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
            for name, value in parts.items():
                found[f"{name}/layout" if batch.is_layout else name] += value if batch.is_layout else share * value
            self._samples += batch.num_samples
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), _MAX_GRADIENT)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        return dict(found)

    def _gradients(self, batch: Batch, share: float) -> tuple[dict[str, float], Sequence[Tensor | None]]:
        """Return a batch's losses, and for each parameter the gradient of their sum, times the share."""
        eyes_only = self.setting.plan.stage(self.step).eyes_only
        with torch.autocast(self._device.type, torch.bfloat16):
            parts = losses(self.model, self._heads, batch.to(self._device), eyes_only=eyes_only)
        total = share * torch.stack(list(parts.values())).sum()
        gradients = torch.autograd.grad(total, list(self.model.parameters()), allow_unused=True)
        return {name: value.item() for name, value in parts.items()}, gradients

    def progress(self) -> float:
        """Return the share of the run that is done."""
        if self.setting.minutes is not None:
            return self._seconds / (60 * self.setting.minutes)
        return self.step / self.setting.steps

    def _learning_rate(self) -> float:
        """Return the share of the peak: a short warm-up, then constant, then falling in a line."""
        setting = self.setting
        falling = (1 - self.progress()) / (1 - setting.decay_from)
        return min((self.step + 1) / setting.warm_up, 1.0, max(setting.last_lr, falling))

    def _log(self, values: dict[str, float]) -> None:
        line = {"step": self.step, "seconds": round(self._seconds), "samples": self._samples}
        line |= {name: round(value, 4) for name, value in values.items()}
        with (self._folder / CURVE).open("a") as curve:
            curve.write(json.dumps(line) + "\n")
        print(" ".join(f"{name} {value}" for name, value in line.items()), flush=True)
