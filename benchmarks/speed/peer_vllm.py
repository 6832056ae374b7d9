"""Runs a trace through vLLM, in one process or in several that share the GPU and the pages.

Written from vLLM's documented interface (EngineArgs, LLMEngine.add_request and step, SamplingParams; 0.20 and later)
and never run, because vLLM has no wheel for machines without a GPU. Check its output before trusting its figures. vLLM
pins its own torch version: install it into a separate environment next to this checkout.

For a fair comparison, a page's blocks are requested when its layout is ready, answers have their forced length, the
caches of prefixes and of processed images are off, and presence and frequency penalties are MinerU's. MinerU's n-gram
rule is left out, because vLLM does not have it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from batchocr.data import Request
from batchocr.model.architecture import Architecture, read_architecture
from batchocr.model.preprocess import Preprocessor
from batchocr.model.prompt import PromptFormat
from benchmarks import ROOT
from benchmarks.replay import PagesInFlight, Replayed, Work
from benchmarks.speed.peer_transformers import request_image
from benchmarks.trace import Trace, trace_named

_MEMORY_SHARE = 0.9
_MAX_LENGTH = 16_384


def measure_vllm(folder: Path, given: argparse.Namespace, processes: int) -> Replayed:
    """Replay the trace in `processes` processes, each with its share of pages and memory. Raises RuntimeError if one
    of them ends before it is ready or done."""
    options = ["--trace", given.trace, "--pages", str(given.pages)]
    options += ["--pages-in-flight", str(max(1, given.pages_in_flight // processes))]
    commands = [
        [sys.executable, "-m", "benchmarks.speed.peer_vllm", str(folder), *options, "--share", f"{index}/{processes}"]
        for index in range(processes)
    ]
    # One after the other: vLLM measures free memory when it starts.
    running = []
    for command in commands:
        running.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        _wait_for_line(running[-1], "ready")
    started = time.perf_counter()
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    work = [Work(*one) for process in running for one in json.loads(_wait_for_line(process, "done "))]
    seconds = time.perf_counter() - started
    for process in running:
        process.wait()
    return Replayed(seconds, given.pages, tuple(work))


def _wait_for_line(process: subprocess.Popen[str], beginning: str) -> str:
    """The rest of the first line that begins like this. vLLM also prints lines of its own."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(beginning):
            return line.removeprefix(beginning)
    raise RuntimeError(f"vLLM ended with exit code {process.wait()} before it was {beginning}")


class _Vllm:
    """vLLM's engine with the checkpoint's chat template. Answers are counted, not kept."""

    def __init__(self, folder: Path, memory_share: float) -> None:
        from vllm import EngineArgs, LLMEngine

        self._architecture: Architecture = read_architecture(folder)
        self._prompts = PromptFormat(folder, self._architecture)
        ops: Any = None  # not needed for grids
        self._preprocessor = Preprocessor(self._architecture.vision, self._architecture.images, ops)
        self._engine: Any = LLMEngine.from_engine_args(
            EngineArgs(
                model=str(folder),
                dtype="bfloat16",
                disable_log_stats=True,
                max_model_len=_MAX_LENGTH,
                gpu_memory_utilization=memory_share,
                enable_prefix_caching=False,
                mm_processor_cache_gb=0,
                limit_mm_per_prompt={"image": 1, "video": 0},
                generation_config="vllm",
            )
        )

    def submit(self, request_id: int, request: Request) -> Work:
        from vllm import SamplingParams

        sampling = request.sampling
        grid = self._preprocessor.patch_grid(request.pixels.height, request.pixels.width, request.resize_to)
        image_tokens = grid[0] * grid[1] // self._architecture.vision.merge_size**2
        prompt = self._prompts.encode(request.prompt, 1)
        self._engine.add_request(
            str(request_id),
            {"prompt_token_ids": list(prompt.token_ids), "multi_modal_data": {"image": request_image(request)}},
            SamplingParams(
                temperature=0.0,
                max_tokens=sampling.max_new_tokens,
                min_tokens=sampling.max_new_tokens,
                ignore_eos=True,
                detokenize=False,
                presence_penalty=sampling.presence_penalty,
                frequency_penalty=sampling.frequency_penalty,
            ),
        )
        prompt_tokens = len(prompt.token_ids) - 1 + image_tokens
        return Work(grid[0] * grid[1], image_tokens, prompt_tokens, sampling.max_new_tokens)

    def step(self) -> list[tuple[int, int]]:
        """The requests that have ended: (request_id, number of tokens)."""
        return [
            (int(output.request_id), len(output.outputs[0].token_ids))
            for output in self._engine.step()
            if output.finished
        ]


def _replay(engine: _Vllm, trace: Trace, pages_in_flight: int) -> list[Work]:
    work: list[Work] = []
    pages = PagesInFlight(trace, lambda request_id, request: work.append(engine.submit(request_id, request)))
    pages.begin(pages_in_flight)
    while pages.left:
        for request_id, num_tokens in engine.step():
            pages.end(request_id, num_tokens)
        pages.begin(pages_in_flight)
    return work


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the processes: load, warm up, say so, wait for the start, and print its work when done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trace", required=True)
    parser.add_argument("--pages", type=int, required=True)
    parser.add_argument("--pages-in-flight", type=int, required=True)
    parser.add_argument("--share", required=True, help="index/count: this process's part of the pages")
    given = parser.parse_args(arguments)
    index, count = (int(part) for part in given.share.split("/"))
    trace = trace_named(given.trace, given.pages)
    engine = _Vllm(given.folder, _MEMORY_SHARE / count)
    _replay(engine, trace.repeated(min(2, given.pages)), given.pages_in_flight)
    print("ready", flush=True)
    sys.stdin.readline()
    work = _replay(engine, replace(trace, pages=trace.pages[index::count]), given.pages_in_flight)
    print("done", json.dumps([list(asdict(one).values()) for one in work]), flush=True)


if __name__ == "__main__":
    main()
