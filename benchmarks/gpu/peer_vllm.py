"""Pages per second of vLLM on the requests of a trace, by one or several processes of it that share a GPU.

    python -m benchmarks.gpu.peer_vllm --set-up 4

It answers the very requests that `throughput` sends to batchocr, a page's blocks once its layout is answered. MinerU's
rule against repeated n-grams is left out: vLLM has none. vLLM runs with CUDA graphs, torch.compile and a process for
its engine, as by default; what is other than its defaults is printed, each with the reason (`settings`).

A set-up is a number of processes, and how their images are prepared:

    4            beforehand, so that only the engines are measured
    4-mps        beforehand, and NVIDIA's MPS lets the processes' kernels run side by side instead of in turns
    4-pool       within the time, by a pool of processes, as by several API servers of `vllm serve`
    4-threads    within the time, by one or two threads of each process (--threads), as by one API server: more of them
                 lose by the interpreter's lock what they gain

Each process gets an equal part of the pages and of the GPU's memory. The time runs from the moment when all of them are
warm to the last answer: the ramps at both ends are in it. Expected on an H200: two minutes, the first time three.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any, Literal

import torch

from batchocr.data import Completion, Pixels, Request, Sampling
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.preprocess import Preprocessor
from batchocr.engine.model.prompt import PromptFormat
from batchocr.planning.architecture import Architecture
from batchocr.planning.families import read_architecture
from batchocr.processes.meter import Meter
from benchmarks.clocks import Clocks, watch
from benchmarks.options import add_checkpoint_option, given_trace, peak_tflops
from benchmarks.record import Record, benchmark_parser
from benchmarks.replay import Replayed, replay
from benchmarks.speed.peer_transformers import chat_text, request_image
from benchmarks.trace import Noise, Trace
from benchmarks.true_shape import checkpoint

START_METHOD = "spawn"
"""Of processes: a fork of one that has used CUDA cannot use it."""
_MPS = "nvidia-cuda-mps-control"


@dataclass(frozen=True, slots=True)
class SetUp:
    """How vLLM is run. ValueError if the text is no set-up."""

    text: str

    def __post_init__(self) -> None:
        if not re.fullmatch("[1-9][0-9]*(-mps|-pool|-threads)?", self.text):
            raise ValueError(self.text)

    @property
    def processes(self) -> int:
        return int(self.text.partition("-")[0])

    @property
    def images(self) -> Literal["before", "within"]:
        """Whether they are prepared before the time that is measured, or within it."""
        return "within" if self.text.endswith(("-pool", "-threads")) else "before"


def set_ups(text: str) -> list[SetUp]:
    """Those in `4,4-pool`."""
    return [SetUp(part) for part in text.split(",")]


def settings(chosen: SetUp, given: argparse.Namespace) -> dict[str, tuple[Any, str]]:
    """The fields of vLLM's EngineArgs that are set, of 0.25.0: their values, and why they are not the defaults."""
    count = chosen.processes
    return {
        "dtype": ("bfloat16", "batchocr's"),
        "max_model_len": (16384, "no request is longer"),
        "max_num_seqs": (1024, "the default of vLLM's offline class on a card of 70 GiB"),
        "max_num_batched_tokens": (16384, "the default of that class on such a card"),
        "disable_log_stats": (True, "the default of that class"),
        "limit_mm_per_prompt": ({"image": 1, "video": 0}, "memory is reserved for as many as a request may have"),
        "enable_prefix_caching": (False, "no image comes twice, so a cache would only cost"),
        "mm_processor_cache_gb": (0, "no image comes twice; and it allows no second thread"),
        "generation_config": ("vllm", "each request has its own sampling"),
        "renderer_num_workers": (given.threads, "a tokenizer for each thread that prepares images"),
        "gpu_memory_utilization": (0.9 / count, "the processes share the memory"),
        # vLLM would otherwise measure what is left beside its weights, and take the memory of other processes, which
        # start at the same time, for its own.
        "kv_cache_memory_bytes": ((12 << 30) // count, "a million tokens in all, more than the pages in flight have"),
    } | {name: (value, "as given") for name, value in given.vllm_args.items()}


def note_settings(record: Record, chosen: SetUp, given: argparse.Namespace) -> None:
    """Record what is other than vLLM has it, and why."""
    said = [f"{name} = {value} ({why})" for name, (value, why) in settings(chosen, given).items()]
    record.note(f"EngineArgs of vLLM, {chosen.text}", said)


def missing() -> str | None:
    """What to do about vLLM where it is not installed."""
    return None if find_spec("vllm") else "vLLM is not installed, so it is not measured: pip install vllm==0.25.0"


def preparer(renderer: Any) -> Callable[[Request], Any]:
    """Makes vLLM's inputs for its engine, token ids and patches, by its own renderer."""
    text = cache(partial(chat_text, renderer.get_tokenizer()))

    def prepare(request: Request) -> Any:
        prompt = {"prompt": text(request.prompt), "multi_modal_data": {"image": request_image(request)}}
        return renderer.render_cmpl([prompt])[0]

    return prepare


@cache
def preparer_in_pool(folder: Path, arguments: str) -> tuple[Callable[[Request], Any], Noise]:
    """This process's own, made when it is first needed. arguments: of EngineArgs, as JSON."""
    from vllm import EngineArgs
    from vllm.renderers import renderer_from_config

    renderer = renderer_from_config(EngineArgs(model=str(folder), **json.loads(arguments)).create_engine_config())
    renderer.api_process_rank = os.getpid()  # part of the names by which the engine tells images apart
    return preparer(renderer), Noise()


def prepare_in_pool(folder: Path, arguments: str, request: Request | None) -> bytes:
    """vLLM's input, pickled: torch would pass its tensors through /dev/shm, which may be small.

    request: without its pixels, which the process draws itself, as an API server has them from elsewhere; None if the
    process is only to be ready.
    """
    prepare, noise = preparer_in_pool(folder, arguments)
    if request is None:
        return b""
    pixels = noise.pixels(request.pixels.height, request.pixels.width)
    return pickle.dumps(prepare(replace(request, pixels=pixels)))


def _size_of(request: Request) -> Request:
    """What a request has in common with all those whose images could be taken for its own, which are noise."""
    pixels = Pixels(request.pixels.height, request.pixels.width, b"")
    return replace(request, pixels=pixels, sampling=Sampling(max_new_tokens=1))


class VllmEngine:
    """vLLM's engine behind the interface that a replay needs of an engine."""

    def __init__(self, share: Share) -> None:
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # it would send them home
        from vllm import EngineArgs, LLMEngine, SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self._has_pool = not share.set_up.text.endswith("-threads")
        self.executor: Executor = ThreadPoolExecutor(share.preparers)
        if self._has_pool:
            context: Any = multiprocessing.get_context(START_METHOD)
            self.executor = ProcessPoolExecutor(share.preparers, mp_context=context)
            in_pool = partial(prepare_in_pool, share.folder, json.dumps(share.arguments))
            for _ in range(share.preparers):
                self.executor.submit(in_pool, None)  # while the engine starts
        self._engine: Any = LLMEngine.from_engine_args(EngineArgs(model=str(share.folder), **share.arguments))
        self._prepare: Callable[[Request], Any] = in_pool if self._has_pool else preparer(self._engine.renderer)
        self._sampling = partial(
            SamplingParams, temperature=0.0, ignore_eos=True, output_kind=RequestOutputKind.FINAL_ONLY
        )
        self._prepared: defaultdict[Request, list[Any]] = defaultdict(list)
        self._in_preparation: deque[tuple[int, Request, Future[Any]]] = deque()

    @property
    def has_work(self) -> bool:
        return bool(self._in_preparation) or self._engine.has_unfinished_requests()

    def prepare(self, trace: Trace) -> None:
        """Prepare the images of a trace, for the requests that are submitted from now on."""
        sizes = [_size_of(Noise().request(ask)) for page in trace.pages for ask in page.asks]
        for size, pickled in zip(sizes, self.executor.map(self._prepare, sizes), strict=True):
            self._prepared[size].append(pickle.loads(pickled))  # noqa: S301 (our own process's)

    def submit(self, request_id: int, request: Request) -> None:
        size = _size_of(request)
        if self._prepared[size]:
            self._add(request_id, request, self._prepared[size].pop())
        else:
            future = self.executor.submit(self._prepare, size if self._has_pool else request)
            self._in_preparation.append((request_id, request, future))

    def step(self, meter: Meter) -> list[tuple[int, Completion]]:
        """Pass on what is prepared, and wait for what the engine's next step answers. The meter stays as it is."""
        waiting = self._in_preparation
        while waiting and (waiting[0][2].done() or not self._engine.has_unfinished_requests()):
            request_id, request, future = waiting.popleft()
            prompt = future.result()
            self._add(request_id, request, pickle.loads(prompt) if self._has_pool else prompt)  # noqa: S301 (as above)
        return [(int(answer.request_id), _completion(answer)) for answer in self._engine.step() if answer.finished]

    def _add(self, request_id: int, request: Request, prompt: Any) -> None:
        params = self._sampling(
            max_tokens=request.sampling.max_new_tokens,
            presence_penalty=request.sampling.presence_penalty,
            frequency_penalty=request.sampling.frequency_penalty,
            repetition_penalty=request.sampling.repetition_penalty,
        )
        self._engine.add_request(str(request_id), prompt, params)


def _completion(answer: Any) -> Completion:
    """The parts of vLLM's answer that a replay looks at."""
    return Completion(answer.outputs[0].text, "length", 0, len(answer.outputs[0].token_ids), 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What tells how much work a request is, of a checkpoint whose weights are loaded elsewhere."""

    architecture: Architecture
    preprocessor: Preprocessor
    prompts: PromptFormat


def sizes_of(folder: Path) -> Sizes:
    """Of the checkpoint in this folder. Its weights are not read."""
    architecture = read_architecture(folder)
    preprocessor = Preprocessor(architecture.vision, architecture.images, Ops(torch.device("cpu")))
    return Sizes(architecture, preprocessor, PromptFormat(folder, architecture))


@dataclass(frozen=True, slots=True)
class Share:
    """What one process does."""

    folder: Path
    trace: Trace
    pages_in_flight: int
    arguments: dict[str, Any]
    """Of EngineArgs."""
    set_up: SetUp
    preparers: int
    """Processes of a pool, or threads."""


def replay_share(share: Share, all_are_warm: Barrier) -> Replayed:
    """Replay a share when all processes are warm."""
    sizes = sizes_of(share.folder)
    engine = VllmEngine(share)
    replay(engine, sizes, share.trace.repeated(16), pages_in_flight=share.pages_in_flight, meter=Meter())
    if share.set_up.images == "before":
        engine.prepare(share.trace)
    all_are_warm.wait()
    replayed = replay(engine, sizes, share.trace, pages_in_flight=share.pages_in_flight, meter=Meter())
    engine.executor.shutdown(wait=False)  # this process waits for its children when it ends
    return replayed


def replay_together(shares: list[Share], device: torch.device) -> tuple[Replayed, Clocks]:
    """Replay all shares at once, each in a process of its own: their work together, and what the GPU did meanwhile."""
    context: Any = multiprocessing.get_context(START_METHOD)
    pool = ProcessPoolExecutor(len(shares), mp_context=context)
    with context.Manager() as manager:
        all_are_warm = manager.Barrier(1 + len(shares))
        futures = [pool.submit(replay_share, share, all_are_warm) for share in shares]
        for future in futures:  # one that has failed leaves no other waiting
            future.add_done_callback(lambda done: all_are_warm.abort() if done.exception() else None)
        parts = []
        with suppress(BrokenBarrierError):
            all_are_warm.wait()
        with watch(device) as clocks:
            for future in as_completed(futures):
                with suppress(BrokenBarrierError):  # the process that broke it says why, perhaps after this one
                    parts.append(future.result())
    pool.shutdown(wait=False)  # one that does not end must not keep back what was measured
    together = Replayed(
        max(part.seconds for part in parts),
        sum(part.pages for part in parts),
        tuple(chain.from_iterable(part.work for part in parts)),
    )
    return together, clocks


@contextmanager
def mps() -> Iterator[None]:
    """NVIDIA's MPS for the processes that start meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        with subprocess.Popen([_MPS, "-f"], stdout=subprocess.DEVNULL) as control:
            try:
                yield
            finally:
                with suppress(subprocess.TimeoutExpired):
                    ask_mps("quit")
                control.kill()


def ask_mps(command: str) -> str:
    return subprocess.run([_MPS], input=command, stdout=subprocess.PIPE, text=True, timeout=20).stdout.strip()


def shares_of(trace: Trace, folder: Path, chosen: SetUp, given: argparse.Namespace) -> list[Share]:
    """Equal shares of pages, pages in flight, memory, and processes that prepare images."""
    count = chosen.processes
    preparers = given.threads if chosen.text.endswith("-threads") else max(1, given.pool // count)
    arguments = {name: value for name, (value, _) in settings(chosen, given).items()}
    traces = [Trace(trace.pages[first::count]) for first in range(count)]
    return [Share(folder, part, -(-given.pages_in_flight // count), arguments, chosen, preparers) for part in traces]


def add_vllm_options(parser: argparse.ArgumentParser) -> None:
    """Add options for vLLM, whatever its set-up."""
    add_checkpoint_option(parser)
    parser.add_argument("--pages", type=int, default=400, help="in all processes together")
    parser.add_argument("--pages-in-flight", type=int, default=208, help="in all processes together")
    parser.add_argument("--pool", type=int, default=8, help="processes that prepare images for vLLM, in all")
    parser.add_argument("--threads", type=int, default=1, help="that prepare images in each process of N-threads")
    parser.add_argument("--vllm-args", type=json.loads, default={}, help="EngineArgs: '{\"max_num_seqs\": 512}'")


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    add_vllm_options(parser)
    parser.add_argument("--set-up", type=SetUp, default=SetUp("4"), help="4, 4-mps, 4-pool or 4-threads")
    given = parser.parse_args(arguments)
    if (reason := missing()) is not None:
        sys.exit(reason)
    record, chosen = Record("peer_vllm", given), given.set_up
    served = mps() if chosen.text.endswith("-mps") else nullcontext()
    with checkpoint(given.checkpoint, smoke=given.smoke) as folder, served:
        note_settings(record, chosen, given)
        replayed, clocks = replay_together(shares_of(given_trace(given), folder, chosen, given), record.device)
        if chosen.text.endswith("-mps") and not ask_mps("get_server_list"):
            raise RuntimeError("MPS served none of the processes: CUDA goes on without it, and does not say so")
        rates = replayed.rates(read_architecture(folder), peak_tflops(record.device.type))
        record.add({"engine": f"vLLM, {chosen.text}", "images": chosen.images} | rates | clocks.a_page(replayed.pages))
        record.figure("pages_per_second", replayed.pages_per_second)


if __name__ == "__main__":
    main()
