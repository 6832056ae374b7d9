"""A reader of another family, for audits: PP-OCR finds the lines of a page and reads them, on the CPU, without a model
that has to be loaded from anywhere.

The only module that knows rapidocr. It is an extra, as it brings onnxruntime and OpenCV.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
from PIL import Image

from batchocr.data import Block, Box, Page, Reading
from batchocr.errors import UsageError
from batchocr.pages.protocol.base import Reader

LINE: Final = "line"
WORD: Final = "word"
INK: Final = "ink"
"""Types of what this reader returns in place of blocks: a line, behind it those of its words that it doubts, and ink of
the height of a line in which it found none."""

_CERTAIN: Final = 0.5
"""The reader doubts a word below this probability. On 13 pages, limits of 0.9, 0.6 and 0.4 found 94.8, 96.9 and 98.1 %
of the changed digits."""

_UNSURE: Final = 0.8
"""The score below which a line is read upside down too, and the better reading counts."""

_LEAST_LETTERS: Final = 6
"""The fewest letters of a line that is worth another look."""

_DETECTION_EDGE: Final = 1600
"""The long side, in px, of the page in which lines are looked for. They are read at the page's own resolution."""

_WORD_GAP: Final = 0.008
_LINE_HEIGHTS: Final = (0.004, 0.06)
"""The least and the greatest height of a line, as shares of the page's height; `_WORD_GAP` is such a share, too, of a
gap between words."""
_LEAST_INK: Final = 0.15

_MAX_EDGE: Final = 4000
"""The longest side of a page that is drawn, in px."""

_OPTIONS: Final[dict[str, Any]] = {
    "Global.log_level": "critical",
    "Global.text_score": 0.0,
    "Global.max_side_len": _MAX_EDGE,
    "Global.use_cls": False,  # it takes some upright lines for ones upside down
    "Det.limit_side_len": _DETECTION_EDGE,
    "Det.limit_type": "max",
    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
}


def require_second_reader() -> str:
    """The name and version of the reader. Raises UsageError if it is not installed."""
    if find_spec("rapidocr") is None or find_spec("onnxruntime") is None:
        raise UsageError("an audit needs its second reader: pip install '.[audit]' in a clone of batchocr")
    return f"rapidocr {version('rapidocr')}"


class SecondReader:
    """A reader of lines of text, which an audit compares with the model. It has one thread: there are as many processes
    as there should be threads."""

    def __init__(self) -> None:
        import cv2
        from rapidocr import RapidOCR

        cv2.setNumThreads(1)
        self._ocr = RapidOCR(params=_OPTIONS)

    def read(self, page: Page) -> Reader:
        """Return the generator that reads this page; it asks nothing."""
        yield []
        return Reading("", tuple(self._lines(page)), 0, 0)

    def _lines(self, page: Page) -> Iterator[Block]:
        width, height = page.image.size
        pixels = np.ascontiguousarray(np.asarray(page.image)[:, :, ::-1])
        found = self._ocr(pixels, return_word_box=True)
        boxes = [] if found.boxes is None else list(found.boxes)
        yield from (_read(INK, box, "", 0.0) for box in ink_outside(page.image, boxes))
        if found.boxes is None or found.txts is None:
            return
        words = found.word_results or [()] * len(found.txts)
        for corners, text, score, of_line in zip(found.boxes, found.txts, found.scores, words, strict=True):
            (x0, y0), (x1, y1) = np.min(corners, axis=0), np.max(corners, axis=0)
            box = (float(x0) / width, float(y0) / height, float(x1) / width, float(y1) / height)
            if score < _UNSURE and len(text) >= _LEAST_LETTERS:
                turned = self._upside_down(pixels[int(y0) : math.ceil(y1), int(x0) : math.ceil(x1)])
                text, score, of_line = max((text, score, of_line), turned, key=lambda reading: reading[1])
            yield _read(LINE, box, text, score)
            yield from (_read(WORD, box, word[0], word[1]) for word in of_line if word[1] < _CERTAIN)

    def _upside_down(self, pixels: Any) -> tuple[str, float, Sequence[Any]]:
        """What a line says if it is turned by 180°, how probable that is, and its words."""
        height, width = pixels.shape[:2]
        crop = np.rot90(pixels, 3 if height > 1.5 * width else 2)
        found = self._ocr(np.ascontiguousarray(crop), use_det=False, return_word_box=True)
        self._ocr.use_det = True
        if not found.txts:
            return "", 0.0, ()
        return found.txts[0], float(found.scores[0]), ()


def ink_outside(image: Image.Image, lines: Sequence[Any]) -> Iterator[Box]:
    """Yield where a page has ink of the height of a line, and none of these lines. lines: corners in px."""
    import cv2

    pixels = np.asarray(image.convert("L"))
    height, width = pixels.shape
    _, ink = cv2.threshold(pixels, 0, 255, cv2.THRESH_BINARY_INV | cv2.THRESH_OTSU)
    for corners in lines:
        (x0, y0), (x1, y1) = np.floor(np.min(corners, axis=0)), np.ceil(np.max(corners, axis=0))
        ink[max(0, int(y0)) : int(y1), max(0, int(x0)) : int(x1)] = 0
    gap = max(3, round(_WORD_GAP * height))
    joined = cv2.morphologyEx(ink, cv2.MORPH_CLOSE, np.ones((1, gap), np.uint8))
    _, _, found, _ = cv2.connectedComponentsWithStats(joined)
    for x, y, w, h, area in found[1:]:
        if _LINE_HEIGHTS[0] * height < h < _LINE_HEIGHTS[1] * height and w > 3 * h and area > _LEAST_INK * w * h:
            yield (x / width, y / height, (x + w) / width, (y + h) / height)


def _read(kind: str, box: Box, text: str, score: float) -> Block:
    sure = min(max(float(score), 1e-6), 1.0)
    return Block(kind, box, None, text, confidence=round(sure, 4), min_logprob=round(math.log(sure), 4))
