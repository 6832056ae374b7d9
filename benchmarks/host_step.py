"""CPU time of the host for a decode step, on a device that takes no time: what the engine itself costs.

    python -m benchmarks.host_step

The engine is the product's; its model and its device do nothing, and each step's graph is replayed at once. What torch
and a driver take to launch and to copy is not in it. With --profile, where the time goes, by function.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from batchocr.data import Pixels, Request, Sampling
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model
from batchocr.engine.model.preprocess import Preprocessor
from batchocr.processes.meter import Meter
from benchmarks.record import commit
from benchmarks.virtual_costs import VIRTUAL_GPUS, costs_on
from benchmarks.virtual_device import Gate, Kernels, VirtualClock, VirtualDevice, VirtualMark, slices
from benchmarks.virtual_gpu import ARCHITECTURE, limits_on
from benchmarks.virtual_model import VirtualLanguage, VirtualOps, VirtualPrompts, VirtualVision

ROWS = (64, 256, 512)
_SIDE = 420
_SAMPLING = Sampling(
    4000, presence_penalty=1.0, frequency_penalty=0.05, no_repeat_ngram_size=100, loop_check="at_limit"
)
"""MinerU2.5's."""
_KV_TOKENS_A_ROW = 4096
_WARM_UP = 30
_REPETITIONS, _STEPS = 12, 100


class InstantClock(VirtualClock):
    """What is launched is done at once; marks are a millisecond apart."""

    def __init__(self) -> None:
        super().__init__(slices)

    def work(self, seconds: float) -> None:
        return

    def launch(self, queued: Kernels | VirtualMark | Gate, *, side: bool) -> None:
        if isinstance(queued, VirtualMark):
            self.now_s += 1e-3
            queued.time_s = self.now_s


def full_engine(num_rows: int) -> Engine:
    """An engine in which so many sequences decode, all begun, with the default limits of a large GPU otherwise."""
    gpu = VIRTUAL_GPUS["h200"]
    costs = costs_on(gpu.speed, ARCHITECTURE, divided=False)
    device = VirtualDevice(InstantClock(), lambda num_graph_rows, num_used: (0.0, Kernels("decode", 0.0, num=1)))
    ops: Any = VirtualOps(device, costs)
    language: Any = VirtualLanguage(device, costs)
    vision: Any = VirtualVision(device, costs)
    prompts: Any = VirtualPrompts()
    preprocessor = Preprocessor(ARCHITECTURE.vision, ARCHITECTURE.images, ops)
    model = Model(ARCHITECTURE, preprocessor, vision, language, prompts, ops, device)
    limits = replace(limits_on(gpu), llm_batch_size=num_rows, num_kv_tokens=num_rows * _KV_TOKENS_A_ROW)
    engine = Engine(model, limits)
    pixels = Pixels(_SIDE, _SIDE, memoryview(bytearray(3 * _SIDE * _SIDE)))
    for request_id in range(num_rows):
        refused = engine.submit(request_id, Request(pixels, "", _SAMPLING, round=1))
        assert refused is None
    meter = Meter()
    while meter.stages["prefill"].items < num_rows:
        engine.step(meter)
    return engine


def microseconds_a_step(engine: Engine, *, num_steps: int) -> float:
    """The thread's CPU time, on average."""
    meter = Meter()
    begun_s = time.thread_time()
    for _ in range(num_steps):
        engine.step(meter)
    return 1e6 * (time.thread_time() - begun_s) / num_steps


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--profile", action="store_true", help="print where the time goes instead")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(f"commit {commit()}, {_REPETITIONS} times {_STEPS} steps")
    for num_rows in given.rows:
        engine = full_engine(num_rows)
        microseconds_a_step(engine, num_steps=_WARM_UP)
        if given.profile:
            _profile(engine)
            continue
        times = [microseconds_a_step(engine, num_steps=_STEPS) for _ in range(_REPETITIONS)]
        print(f"{num_rows} rows: {min(times):.0f} µs a step at least, {median(times):.0f} µs the median", flush=True)


def _profile(engine: Engine) -> None:
    profile = cProfile.Profile()
    profile.runcall(microseconds_a_step, engine, num_steps=_STEPS)
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
