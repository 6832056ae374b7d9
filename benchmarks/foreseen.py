"""Answers that are known before they are asked for, by the pixels that they are about: what engine processes of
benchmarks give in place of the model's. Loads no torch."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from batchocr.data import Completion, Pixels


@dataclass(frozen=True, slots=True)
class Foreseen:
    """output_tokens: how many the answer takes."""

    text: str
    output_tokens: int

    @property
    def completion(self) -> Completion:
        """As long as a model's."""
        return Completion(self.text, "stop", 345, self.output_tokens, 0.98765432, -1.2345678)


def pixels_key(pixels: Pixels) -> bytes:
    """A hash of the size and a few thousand bytes, cheap enough to compute while the engine runs."""
    view = memoryview(pixels.data).cast("B")
    step = max(1, len(view) // 4096)
    return hashlib.blake2b(b"%d %d " % (pixels.height, pixels.width) + bytes(view[::step]), digest_size=16).digest()


def write_foreseen(path: Path, answers: Mapping[bytes, Foreseen]) -> None:
    """Write the answers, each by the `pixels_key` of what it is about."""
    values = {key.hex(): [answer.text, answer.output_tokens] for key, answer in answers.items()}
    path.write_text(json.dumps(values), encoding="utf-8")


def read_foreseen(path: Path) -> dict[bytes, Foreseen]:
    values = json.loads(path.read_text(encoding="utf-8"))
    return {bytes.fromhex(key): Foreseen(*answer) for key, answer in values.items()}


def engine_command(module: str, answers: Path) -> tuple[str, ...]:
    """What starts an engine process of benchmarks that gives these answers. module: its name in `speed`."""
    return sys.executable, "-m", f"benchmarks.speed.{module}", str(answers)
