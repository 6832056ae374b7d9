"""Pages per second of vLLM on the requests of a trace, by one or several processes of it that share a GPU.

    python -m benchmarks.gpu.peer_vllm --processes 2

vLLM runs with CUDA graphs, torch.compile and a process for its engine, as by default; how many sequences it takes at
once, and how many threads prepare images, is set here, and another choice may be faster (`--vllm-args`, `--threads`).
It answers the very requests that `throughput` sends to batchocr, a page's blocks once its layout is answered. As in
`vllm serve`, threads prepare the images: vLLM's own offline class prepares one at a time, which takes a quarter of a
second a page. MinerU's rule against repeated n-grams is left out: vLLM has none.

Each process gets an equal part of the pages and of the GPU's memory. The time runs from the moment when all of them are
warm to the last answer.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import torch

from batchocr.data import Completion, Request
from batchocr.engine.backend.reference import Ops
from batchocr.engine.model.preprocess import Preprocessor
from batchocr.engine.model.prompt import PromptFormat
from batchocr.planning.architecture import Architecture
from batchocr.planning.families import read_architecture
from batchocr.processes.meter import Meter
from benchmarks.clocks import watch
from benchmarks.options import add_checkpoint_option, given_trace, peak_tflops
from benchmarks.record import Record, Value, benchmark_parser
from benchmarks.replay import Replayed, replay
from benchmarks.speed.peer_transformers import chat_text, request_image
from benchmarks.trace import Trace
from benchmarks.true_shape import checkpoint

_MEMORY_SHARE = 0.9
_WARM_UP_PAGES = 16
_START_METHOD = "spawn"
_ARGUMENTS = {
    "dtype": "bfloat16",
    "seed": 0,
    "max_model_len": 16384,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 16384,
    "limit_mm_per_prompt": {"image": 1, "video": 0},
    "enable_prefix_caching": False,
    "mm_processor_cache_gb": 0,
    "generation_config": "vllm",
    "disable_log_stats": True,
    # A million tokens, more than 512 dense requests have. vLLM would otherwise measure what is left beside its weights
    # and take other processes, which start at the same time, for its own.
    "kv_cache_memory_bytes": 12 << 30,
}
"""Of vLLM's EngineArgs. Caches are off: no image comes twice."""


def missing() -> str | None:
    """What to do about vLLM where it is not installed."""
    return None if find_spec("vllm") else "vLLM is not installed, so it is not measured: pip install vllm==0.25.0"


class VllmEngine:
    """vLLM's engine behind the interface that a replay needs of an engine."""

    def __init__(self, folder: Path, arguments: dict[str, Any], threads: int) -> None:
        """arguments: of EngineArgs. threads: that prepare images."""
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # it would send them home
        from vllm import EngineArgs, LLMEngine, SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self._engine: Any = LLMEngine.from_engine_args(
            EngineArgs(model=str(folder), renderer_num_workers=threads, **arguments)
        )
        self._chat_text = cache(partial(chat_text, self._engine.get_tokenizer()))
        self._sampling = partial(
            SamplingParams, temperature=0.0, ignore_eos=True, output_kind=RequestOutputKind.FINAL_ONLY
        )
        self._threads = ThreadPoolExecutor(threads)
        self._in_preparation: deque[tuple[int, Request, Future[Any]]] = deque()

    @property
    def has_work(self) -> bool:
        return bool(self._in_preparation) or self._engine.has_unfinished_requests()

    def submit(self, request_id: int, request: Request) -> None:
        self._in_preparation.append((request_id, request, self._threads.submit(self._prepare, request)))

    def step(self, meter: Meter) -> list[tuple[int, Completion]]:
        """Pass on what is prepared, and wait for what the engine's next step answers. The meter stays as it is."""
        waiting = self._in_preparation
        while waiting and (waiting[0][2].done() or not self._engine.has_unfinished_requests()):
            request_id, request, prompt = waiting.popleft()
            sampling = request.sampling
            params = self._sampling(
                max_tokens=sampling.max_new_tokens,
                presence_penalty=sampling.presence_penalty,
                frequency_penalty=sampling.frequency_penalty,
                repetition_penalty=sampling.repetition_penalty,
            )
            self._engine.add_request(str(request_id), prompt.result(), params)
        return [(int(answer.request_id), _completion(answer)) for answer in self._engine.step() if answer.finished]

    def _prepare(self, request: Request) -> Any:
        """vLLM's input for its engine: token ids and patches."""
        prompt = {"prompt": self._chat_text(request.prompt), "multi_modal_data": {"image": request_image(request)}}
        return self._engine.renderer.render_cmpl([prompt])[0]


def _completion(answer: Any) -> Completion:
    """The parts of vLLM's answer that a replay looks at."""
    output = answer.outputs[0]
    return Completion(output.text, "length", 0, len(output.token_ids), 0.0, 0.0)


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
    """What one process does. threads: that prepare images."""

    folder: Path
    device: torch.device
    trace: Trace
    pages_in_flight: int
    arguments: dict[str, Any]
    threads: int


def replay_share(share: Share, all_are_warm: Barrier) -> tuple[Replayed, dict[str, Value]]:
    """Replay a share when all processes are warm. Returns what the GPU's clocks did meanwhile, too."""
    sizes = sizes_of(share.folder)
    try:
        engine = VllmEngine(share.folder, share.arguments, share.threads)
        warm_up = share.trace.repeated(_WARM_UP_PAGES)
        replay(engine, sizes, warm_up, pages_in_flight=share.pages_in_flight, meter=Meter())
    except BaseException:
        all_are_warm.abort()
        raise
    all_are_warm.wait()
    with watch(share.device) as clocks:
        replayed = replay(engine, sizes, share.trace, pages_in_flight=share.pages_in_flight, meter=Meter())
    return replayed, clocks.columns()


def replay_together(shares: list[Share]) -> tuple[Replayed, dict[str, Value]]:
    """Replay all shares at once, each in a process of its own: their work and rates together."""
    context: Any = multiprocessing.get_context(_START_METHOD)
    pool = ProcessPoolExecutor(len(shares), mp_context=context)
    with context.Manager() as manager:
        all_are_warm = manager.Barrier(len(shares))
        futures = [pool.submit(replay_share, share, all_are_warm) for share in shares]
        ended = []
        for future in as_completed(futures):
            with suppress(BrokenBarrierError):  # the process that broke it says why, perhaps after this one
                ended.append(future.result())
    pool.shutdown(wait=False)  # one that does not end must not keep back what was measured
    parts = [part for part, _ in ended]
    together = Replayed(
        max(part.seconds for part in parts),
        sum(part.pages for part in parts),
        tuple(chain.from_iterable(part.work for part in parts)),
    )
    return together, ended[0][1]


def shares_of(trace: Trace, folder: Path, device: torch.device, given: argparse.Namespace) -> list[Share]:
    """Equal shares of pages, pages in flight, memory and threads."""
    count = given.processes
    arguments = _ARGUMENTS | {"gpu_memory_utilization": _MEMORY_SHARE / count} | given.vllm_args
    in_flight, threads = -(-given.pages_in_flight // count), max(1, given.threads // count)
    return [
        Share(folder, device, Trace(trace.pages[first::count]), in_flight, arguments, threads) for first in range(count)
    ]


def add_vllm_options(parser: argparse.ArgumentParser) -> None:
    """Add options for vLLM, whatever the number of its processes."""
    add_checkpoint_option(parser)
    parser.add_argument("--pages-in-flight", type=int, default=208, help="in all processes together")
    parser.add_argument("--threads", type=int, default=8, help="that prepare images for vLLM, in all its processes")
    parser.add_argument("--vllm-args", type=json.loads, default={}, help="EngineArgs: '{\"enforce_eager\": true}'")


def main(arguments: list[str] | None = None) -> None:
    parser = benchmark_parser(__doc__)
    add_vllm_options(parser)
    parser.add_argument("--pages", type=int, default=60, help="for all processes together")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(arguments)
    if (reason := missing()) is not None:
        sys.exit(reason)
    record = Record("peer_vllm", given)
    trace = given_trace(given)
    with checkpoint(given.checkpoint, smoke=given.smoke) as folder:
        replayed, clocks = replay_together(shares_of(trace, folder, record.device, given))
        rates = replayed.rates(read_architecture(folder), peak_tflops(record.device.type))
        record.add({"engine": "vLLM", "processes": given.processes} | rates | clocks)
        record.figure("pages_per_second", replayed.pages_per_second)


if __name__ == "__main__":
    main()
