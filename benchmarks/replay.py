"""Runs a trace through batchocr's engine, to find the work done and the time it takes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from batchocr.data import Completion, Request
from batchocr.engine.model.preprocess import Preprocessor
from batchocr.engine.model.prompt import PromptFormat
from batchocr.planning.architecture import Architecture
from batchocr.planning.cost import decode_flop, prefill_flop, vision_flop
from batchocr.processes.counts import DEVICE_STAGES
from batchocr.processes.meter import Meter
from benchmarks.record import Value
from benchmarks.trace import Noise, Trace


class Steps(Protocol):
    """The interface that a replay needs of an engine; batchocr's engine has it."""

    @property
    def has_work(self) -> bool: ...

    def submit(self, request_id: int, request: Request) -> Completion | None: ...

    def step(self, meter: Meter) -> list[tuple[int, Completion]]: ...


class Reader(Protocol):
    """What tells how much work a request is; batchocr's Model has it."""

    @property
    def architecture(self) -> Architecture: ...

    @property
    def preprocessor(self) -> Preprocessor: ...

    @property
    def prompts(self) -> PromptFormat: ...


@dataclass(frozen=True, slots=True)
class Work:
    """The model's work for one request. prompt_tokens: including those of the image."""

    patches: int
    image_tokens: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """What an engine did for a trace, request by request, and how long it took.

    A rate is over all the time, from the first request to the last answer. What was answered between two moments says
    little of what was done between them: when a quarter of the patches are answered, half of the ViT's work is done.
    """

    seconds: float
    pages: int
    work: tuple[Work, ...]

    @property
    def pages_per_second(self) -> float:
        return self.pages / self.seconds

    def rates(self, architecture: Architecture, peak_tflops: float | None) -> dict[str, Value]:
        """Table columns. peak_tflops: of the device."""
        tflops = model_flop(architecture, self.work) / self.seconds / 1e12
        return {
            "pages": self.pages,
            "seconds": self.seconds,
            "pages/s": self.pages_per_second,
            "patches/s": sum(work.patches for work in self.work) / self.seconds,
            "image tokens/s": sum(work.image_tokens for work in self.work) / self.seconds,
            "output tokens/s": sum(work.output_tokens for work in self.work) / self.seconds,
            "TFLOP/s": tflops,
            "of peak": tflops / peak_tflops if peak_tflops else None,
        }


def model_flop(architecture: Architecture, work: Iterable[Work]) -> float:
    """Floating-point operations of the model itself, without those that an engine adds."""
    work = list(work)
    language = architecture.language
    # The first token of an answer comes from prefill; the last is never fed back.
    lengths = (one.prompt_tokens + step for one in work for step in range(1, one.output_tokens))
    return (
        vision_flop(architecture.vision, [one.patches for one in work])
        + prefill_flop(language, [one.prompt_tokens for one in work])
        + decode_flop(language, lengths)
    )


def work_of(model: Reader, request: Request) -> Work:
    """The model's work for a request whose answer has its full length; none for a detector's."""
    if request.detector:
        return Work(0, 0, 0, 0)
    rows, columns = model.preprocessor.patch_grid(request.pixels.height, request.pixels.width, request.resize_to)
    image_tokens = rows * columns // model.architecture.vision.merge_size**2
    prompt = model.prompts.encode(request.prompt, image_tokens)
    return Work(rows * columns, image_tokens, len(prompt.token_ids), request.sampling.max_new_tokens)


@dataclass(slots=True)
class PagesInFlight:
    """Submits the requests of a trace: layouts while there is room, blocks when their layout is ready."""

    trace: Trace
    submit: Callable[[int, Request], None]
    noise: Noise = field(default_factory=Noise)
    asked: dict[int, tuple[int, int]] = field(default_factory=dict)
    left: Counter[int] = field(default_factory=Counter)
    num_begun: int = 0
    num_requests: int = 0

    def begin(self, pages_in_flight: int) -> None:
        while self.num_begun < len(self.trace.pages) and len(self.left) < pages_in_flight:
            self.left[self.num_begun] = 1 + len(self.trace.pages[self.num_begun].blocks)
            self._ask(self.num_begun, 0)
            self.num_begun += 1

    def end(self, request_id: int, num_tokens: int) -> None:
        page, index = self.asked.pop(request_id)
        wanted = self.trace.pages[page].asks[index].output_tokens
        if num_tokens != wanted:
            raise RuntimeError(f"a request for {wanted} tokens was answered with {num_tokens}")
        if index == 0:
            for block in range(1, 1 + len(self.trace.pages[page].blocks)):
                self._ask(page, block)
        self.left[page] -= 1
        if not self.left[page]:
            del self.left[page]

    def _ask(self, page: int, index: int) -> None:
        self.asked[self.num_requests] = page, index
        self.submit(self.num_requests, self.noise.request(self.trace.pages[page].asks[index]))
        self.num_requests += 1


def replay(engine: Steps, model: Reader, trace: Trace, *, pages_in_flight: int, meter: Meter) -> Replayed:
    """Send every request of the trace through the engine, which runs this model."""
    requests: list[Request] = []

    def submit(request_id: int, request: Request) -> None:
        requests.append(request)
        refused = engine.submit(request_id, request)
        if refused is not None:
            raise RuntimeError(f"the engine refused a request: {refused.error}")

    pages = PagesInFlight(trace, submit)
    started = time.perf_counter()
    pages.begin(pages_in_flight)
    while pages.left:
        for request_id, completion in engine.step(meter):
            if completion.error is not None:
                raise RuntimeError(f"a request has failed: {completion.error}")
            pages.end(request_id, completion.output_tokens)
        pages.begin(pages_in_flight)
    seconds = time.perf_counter() - started
    return Replayed(seconds, len(trace.pages), tuple(work_of(model, request) for request in requests))


def stage_shares(meter: Meter, seconds: float) -> dict[str, Value]:
    """Each stage's busy time by the device's clock, and the time in no stage, as shares; two stages that run side by
    side can have 100 % each."""
    shares: dict[str, Value] = {f"{stage} share": meter.stages[stage].busy_s / seconds for stage in DEVICE_STAGES}
    return shares | {"no stage": max(0.0, 1 - meter.device_busy.total_s / seconds)}
