"""The training run: lessons in, checkpoints and a loss curve out. It can be killed and resumed."""

from __future__ import annotations

import copy
import json
import os
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sample_data.training.batches import Batch
from sample_data.training.export import load_exported
from sample_data.training.heads import IGNORED, heads
from sample_data.training.lessons import Lesson, Plan, load_lessons
from sample_data.training.losses import language_losses, vision_losses
from sample_data.training.memory import Memory
from sample_data.training.model import ReadingModel, Shape
from sample_data.training.optimizer import optimizers
from sample_data.training.progress import Examiner
from sample_data.training.vocabulary import Vocabulary

CHECKPOINT, CURVE = "checkpoint.pt", "curve.jsonl"
LOG_EVERY = 20
_CHECKPOINT_SECONDS = 180
_MAX_GRADIENT = 1.0
_NUM_TEXTS = 60


@dataclass(frozen=True, slots=True)
class Setting:
    """How to train. decay_from: the share of the run after which the learning rate falls.

    rehearsed: layouts rehearsed from memory in a step. num_workers: processes that make lessons. num_threads: batches
    of a lesson that are worked on at once. exam_every: steps. minutes: ends the run by the clock instead of by steps,
    so that it is not reproducible. with_heads: whether the auxiliary heads are there, which exported weights lack.
    fork_weight: of the samples' forks, beside other tokens. texts_again: batches of text, of those that the ViT saw
    last, that the language model reads again in a step; a run that is resumed has none at first.
    average_over: the steps over which the weights are averaged for exams and export.
    """

    plan: Plan
    steps: int
    muon_lr: float
    adam_lr: float
    rehearsed: int
    num_workers: int
    num_threads: int
    exam_every: int
    with_heads: bool = True
    fork_weight: float = 1.0
    texts_again: int = 0
    average_over: int = 1
    warm_up: int = 20
    decay_from: float = 0.45
    last_lr: float = 0.02
    minutes: float | None = None


class _Learnt(NamedTuple):
    """losses: by name, weighted. gradients: of each parameter. vision: the ViT's output for the images."""

    losses: dict[str, float]
    gradients: Sequence[Tensor | None]
    vision: Tensor


class Training:
    """A run in a folder. Its state is the model, its optimisers, its memory, and its progress."""

    def __init__(self, setting: Setting, folder: Path, *, seed: int, shape: Shape | None = None) -> None:
        torch.manual_seed(seed)
        self.setting, self._folder, self._seed = setting, folder, seed
        self.vocabulary = Vocabulary()
        self._heads = heads(self.vocabulary.first_number) if setting.with_heads else ()
        self.model = ReadingModel(shape or Shape(len(self.vocabulary)), self._heads)
        self.average = copy.deepcopy(self.model)
        self._memory = Memory(self.vocabulary)
        self._texts: deque[tuple[Batch, Tensor]] = deque(maxlen=_NUM_TEXTS)
        self._threads = ThreadPoolExecutor(setting.num_threads)
        self._optimizers = optimizers(self.model, setting.muon_lr, setting.adam_lr, self._threads)
        self._rates = [group["lr"] for optimizer in self._optimizers for group in optimizer.param_groups]
        self.step, self._seconds, self._samples = 0, 0.0, 0
        folder.mkdir(parents=True, exist_ok=True)

    def resume(self) -> None:
        """Continue from the folder's checkpoint."""
        state = torch.load(self._folder / CHECKPOINT, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self._memory.restore(state["memory"])
        self.step, self._seconds, self._samples = state["step"], state["seconds"], state["samples"]

    def save(self) -> None:
        """Write the checkpoint, completely or not at all."""
        state = {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "memory": self._memory.state(),
            "step": self.step,
            "seconds": self._seconds,
            "samples": self._samples,
        }
        unfinished = self._folder / f"{CHECKPOINT}.unfinished"
        torch.save(state, unfinished)
        os.replace(unfinished, self._folder / CHECKPOINT)

    def run(self) -> None:
        """Train to the end of the run, with regular lines in the curve and a checkpoint every few minutes."""
        examiner = Examiner(self.vocabulary)
        lessons = self.lessons()
        began, saved = time.monotonic() - self._seconds, self._seconds
        recent: dict[str, list[float]] = defaultdict(list)
        while self.progress() < 1:
            found = self.learn(next(lessons))
            self._seconds = time.monotonic() - began
            for name, value in found.items():
                recent[name].append(value)
            if self.step % LOG_EVERY == 0:
                self._log({name: sum(values) / len(values) for name, values in recent.items()})
                recent.clear()
            if self.step % self.setting.exam_every == 0:
                self._log(examiner(self.average))
            if self._seconds - saved > _CHECKPOINT_SECONDS:
                self.save()
                saved = self._seconds
        self._log(examiner(self.average))
        self.save()

    def lessons(self) -> Iterator[Lesson]:
        """Return the lessons from the next step on."""
        return load_lessons(self.setting.plan, self._seed, self.step, self.setting.num_workers)

    def learn(self, lesson: Lesson) -> dict[str, float]:
        """Take one step. Returns its weighted losses; layouts' names end in `/layout`, or from memory in `/memory`."""
        rate = self._learning_rate()
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        for group, peak in zip(groups, self._rates, strict=True):
            group["lr"] = peak * rate
        found: dict[str, float] = defaultdict(float)
        for learnt in self._learn_parts(lesson):
            for parameter, gradient in zip(self.model.parameters(), learnt.gradients, strict=True):
                if gradient is not None:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
            for name, value in learnt.losses.items():
                found[name] += value
        self._samples += sum(batch.num_samples for batch in lesson)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), _MAX_GRADIENT)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        self._average()
        return dict(found)

    def begin_with(self, folder: Path) -> None:
        """Begin with the weights that were exported into this folder."""
        load_exported(self.model, folder)
        load_exported(self.average, folder)

    @torch.no_grad()
    def _average(self) -> None:
        """Move the running mean of the weights towards them."""
        weight = 1 / min(self.step, self.setting.average_over)
        for mean, parameter in zip(self.average.parameters(), self.model.parameters(), strict=True):
            mean.lerp_(parameter, weight)

    def _learn_parts(self, lesson: Lesson) -> list[_Learnt]:
        """Learn from the lesson's batches and from memory, then remember the lesson's layouts.

        Each batch runs on one core: two cores sharing every operation would wait for each other all the time.
        """
        num_in_texts = sum(_num_answered(batch) for batch in lesson if not batch.layouts)
        shares = [1.0 if batch.layouts else _num_answered(batch) / num_in_texts for batch in lesson]
        parts = [self._threads.submit(self._by_sight, *part) for part in zip(lesson, shares, strict=True)]
        if self.setting.plan.stage(self.step).layouts and self._memory.has_enough:
            parts += [self._threads.submit(self._from_memory, number) for number in range(self.setting.rehearsed)]
        if len(self._texts) == _NUM_TEXTS:
            parts += [self._threads.submit(self._text_again, number) for number in range(self.setting.texts_again)]
        learnt = [part.result() for part in parts]
        for batch, part in zip(lesson, learnt, strict=False):
            if batch.layouts and self.setting.rehearsed:
                self._memory.add(batch, part.vision)
            elif not batch.layouts and self.setting.texts_again:
                self._texts.append((batch, part.vision))
        return learnt

    def _by_sight(self, batch: Batch, share: float) -> _Learnt:
        """Learn from what the ViT sees; after the first steps, through the language model too."""
        with self._rounded():
            with torch.set_grad_enabled(not self.setting.plan.stage(self.step).eyes_rest):
                vision = self.model.see(batch)
            losses = vision_losses(self.model, self._heads, batch, vision)
            if not self.setting.plan.stage(self.step).eyes_only:
                losses |= language_losses(self.model, self._heads, batch, vision, self.setting.fork_weight)
        return self._learnt(losses, "/layout" if batch.layouts else "", share, vision)

    def _text_again(self, number: int) -> _Learnt:
        """Learn from a text that was seen before. number: its index among those of this step."""
        rng = np.random.default_rng((self._seed, self.step, 4, number))
        batch, vision = self._texts[rng.integers(len(self._texts))]
        with self._rounded():
            losses = language_losses(self.model, self._heads, batch, vision, self.setting.fork_weight)
        return self._learnt(losses, "/again", 1.0, vision)

    def _from_memory(self, number: int) -> _Learnt:
        """Learn from a layout that was seen before. number: its index among those of this step."""
        batch, vision = self._memory.rehearsal(np.random.default_rng((self._seed, self.step, 2, number)))
        with self._rounded():
            losses = language_losses(self.model, self._heads, batch, vision, self.setting.fork_weight)
        return self._learnt(losses, "/memory", 1 / self.setting.rehearsed, vision)

    def _rounded(self) -> torch.autocast:
        """Products in bfloat16, without the cache of rounded weights: all threads would share it, and each empty it."""
        return torch.autocast("cpu", torch.bfloat16, cache_enabled=False)

    def _learnt(self, losses: dict[str, Tensor], task: str, share: float, vision: Tensor) -> _Learnt:
        """share: the weight of this part in the step's gradients and in the task's losses."""
        total = share * torch.stack(list(losses.values())).sum()
        gradients = torch.autograd.grad(total, list(self.model.parameters()), allow_unused=True)
        return _Learnt(
            {name + task: share * value.item() for name, value in losses.items()}, gradients, vision.detach()
        )

    def progress(self) -> float:
        """Return the share of the run that is done."""
        if self.setting.minutes is not None:
            return self._seconds / (60 * self.setting.minutes)
        return self.step / self.setting.steps

    def _learning_rate(self) -> float:
        """Return the share of the peak rate: a short warm-up, then constant, then a linear decay."""
        setting = self.setting
        falling = (1 - self.progress()) / (1 - setting.decay_from)
        return min((self.step + 1) / setting.warm_up, 1.0, max(setting.last_lr, falling))

    def _log(self, values: dict[str, float]) -> None:
        line = {"step": self.step, "seconds": round(self._seconds), "samples": self._samples}
        line |= {name: round(value, 4) for name, value in values.items()}
        with (self._folder / CURVE).open("a") as curve:
            curve.write(json.dumps(line) + "\n")
        print(" ".join(f"{name} {value}" for name, value in line.items()), flush=True)


def _num_answered(batch: Batch) -> int:
    return int((batch.answer != IGNORED).sum())
