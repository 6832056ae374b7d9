"""From a training page to what the model is shown and asked: pixels as the product makes them, answers, labels.

The product crops a block by the layout's box and resizes the crop to a grid of squares. The labels, for the auxiliary
losses, say what is in each square.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from batchocr.planning.image_size import smart_resize
from sample_data.training.heads import (
    BLOCK_TYPES,
    EDGE_STEP,
    IGNORED,
    MAX_PLACE,
    MAX_RANK,
    SLOT_HEIGHT,
    SLOT_WIDTH,
    SLOTS,
)
from sample_data.training.table import ROW_END
from sample_data.training.truth import Block, BlockType, TrainingPage, ink_box
from sample_data.training.vocabulary import (
    END,
    FORMULA_PROMPT,
    LAYOUT_PROMPT,
    NUMBERS,
    TABLE_PROMPT,
    TEXT_PROMPT,
    Vocabulary,
)

PATCH, MERGE = 10, 2
SQUARE = PATCH * MERGE
"""px; the side of the square that one image token covers."""
MAX_PIXELS = 251_000  # just above 500², so that the layout image has 25 × 25 squares
MIN_PIXELS = SQUARE * SQUARE
LAYOUT_SIZE = 1036  # px; MinerU resizes a page to it before the model's own limit applies
_MIN_EDGE = 28  # px; MinerU enlarges thinner crops

_MAX_SLIPS = 0.12  # share of a reading's tokens
_STUTTERS = 0.3  # share of the readings in which something is said twice
_MOST_AGAIN = 8  # words, or letters
_MOST_TIMES, _MOST_AGAIN_TOKENS = 9, 40
_AFTER_STUTTER = 3  # tokens
_LOOKS_ALIKE = ((5, 10_000), (2, 15))
"""Tokens said last by which a place is confused with others, and how many tokens away these are at most."""
_MOVED_BY = 3.0  # thousandths, as a standard deviation

_PLACELESS = frozenset(("{", "}", "^{", "_{", ROW_END))
"""Tokens at the place of another token, which is the one that the square shows."""
_PROMPTS = {"table": TABLE_PROMPT, "equation": FORMULA_PROMPT}


class LayoutBlock(NamedTuple):
    """A block as a layout names it. box: x0, y0, x1, y1 in thousandths of the page, 0–999."""

    type: BlockType
    box: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Sample:
    """An image, a question and its answer.

    image: uint8 [h, w], multiples of SQUARE. answer: token ids, including the end token. history: the answer that the
    model is told it gave, with slips and with words said twice, because it also has to continue after its own; the
    answer at words that it should not say is IGNORED. guide: for each answer token, the image token that holds its ink,
    or IGNORED. forks: the answer tokens that can only be told by where one is, as what was said last is said elsewhere
    too, and followed by another, or was said twice. labels, said: by head, for the image tokens and for the answer
    tokens, [tokens, slots]. blocks: those that a layout should name. in_quarters: the ViT sees each quarter of the
    image separately: what begins where can mostly be told from nearby, at a third of the cost.
    """

    image: NDArray[np.uint8]
    prompt: str
    answer: NDArray[np.int64]
    history: NDArray[np.int64]
    guide: NDArray[np.int64]
    forks: NDArray[np.bool_]
    labels: dict[str, NDArray[np.int64]]
    said: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    blocks: tuple[LayoutBlock, ...] = ()
    in_quarters: bool = False

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of image tokens."""
        return self.image.shape[0] // SQUARE, self.image.shape[1] // SQUARE

    @property
    def num_patches(self) -> int:
        return self.image.size // PATCH**2


def resized(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the image at the size at which the product shows it to the model."""
    picture = Image.fromarray(image)
    if min(picture.size) < _MIN_EDGE:
        scale = _MIN_EDGE / min(picture.size)
        size = (int(np.ceil(picture.width * scale)), int(np.ceil(picture.height * scale)))
        picture = picture.resize(size, Image.Resampling.BICUBIC)
    height, width = smart_resize(
        picture.height, picture.width, factor=SQUARE, min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS
    )
    return np.asarray(picture.resize((width, height), Image.Resampling.BICUBIC))


class Sampler:
    """Makes samples of pages."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        (self._space,) = vocabulary.ids((" ",))

    def layout(
        self, page: TrainingPage, rng: np.random.Generator | None = None, *, in_quarters: bool = False
    ) -> Sample:
        """Return the question about the page's layout. rng: for slips; without it there are none."""
        shown = Image.fromarray(page.image).resize((LAYOUT_SIZE, LAYOUT_SIZE), Image.Resampling.BICUBIC)
        height, width = page.image.shape
        blocks = tuple(LayoutBlock(block.type, thousandths(block, width, height)) for block in page.blocks)
        return self.layout_of(resized(np.asarray(shown)), blocks, rng, in_quarters=in_quarters)

    def layout_of(
        self,
        image: NDArray[np.uint8],
        blocks: tuple[LayoutBlock, ...],
        rng: np.random.Generator | None = None,
        *,
        in_quarters: bool = False,
    ) -> Sample:
        """Return the question about the layout of a page's image; the page has these blocks."""
        answer = _layout_answer(blocks, image.shape[0] // SQUARE)
        tokens, guide, ranks, links = zip(*answer, strict=True)
        ids = np.array(self._vocabulary.ids(tokens))
        return Sample(
            image,
            LAYOUT_PROMPT,
            ids,
            ids if rng is None else self._with_edges_moved(ids, rng),
            np.array(guide),
            np.zeros(len(ids), dtype=bool),
            _layout_labels(image.shape[0], blocks),
            {"ranks": np.array(ranks), "links": np.array(links)},
            blocks,
            in_quarters,
        )

    def block(self, page: TrainingPage, block: Block, rng: np.random.Generator) -> Sample:
        """Return the question about a block, cropped approximately as a layout would place it."""
        height, width = page.image.shape
        box = np.array(thousandths(block, width, height)) + rng.normal(0, (1.5, 1.2, 1.5, 1.2)).round()
        x0, y0, x1, y1 = (box.clip(0, 1000) * (width, height, width, height) / 1000).round().astype(int)
        crop = page.image[y0 : max(y1, y0 + 4), x0 : max(x1, x0 + 4)]
        moved = block.places - (x0, x0, y0, 0)
        return self._reading(crop, _PROMPTS.get(block.type, TEXT_PROMPT), block.tokens, moved, rng)

    def fragment(
        self, page: TrainingPage, block: Block, lines: range, window: tuple[float, int], rng: np.random.Generator
    ) -> Sample | None:
        """Return the question about some lines of a block, limited to the characters that lie wholly in a window.

        window: its left edge and its width, px. Characters cut by its edges are painted over. None if nothing is left
        to read.
        """
        left, width = round(window[0]), window[1]
        places = block.places
        inside = (block.lines >= lines.start) & (block.lines < lines.stop)
        inside &= (places[:, 0] >= left) & (places[:, 1] <= left + width)
        chosen = _trimmed([int(index) for index in np.flatnonzero(inside)], block)
        if not chosen:
            return None
        _, y0, _, y1 = ink_box(places[chosen])
        y0, y1 = (np.array((y0, y1)) + rng.normal(0, 2.5, 2)).round().clip(0, page.image.shape[0])
        crop = page.image[int(y0) : max(int(y1), int(y0) + 12), max(left, 0) : left + width].copy()
        if not crop.size:  # a skewed scan has lost the edge of its paper
            return None
        _paint_over_cut_characters(crop, block, chosen, left, float(y0))
        moved = places[chosen] - np.array((left, left, y0, 0), dtype=np.float32)
        tokens, moved = _with_line_breaks(block, chosen, moved)
        return self._reading(crop, TEXT_PROMPT, tokens, moved, rng)

    def _reading(
        self,
        crop: NDArray[np.uint8],
        prompt: str,
        tokens: tuple[str, ...],
        places: NDArray[np.float32],
        rng: np.random.Generator,
    ) -> Sample:
        image = resized(crop)
        rows, columns = image.shape[0] // SQUARE, image.shape[1] // SQUARE
        x = (places[:, 0] + places[:, 1]) / 2 * image.shape[1] / crop.shape[1]
        y = places[:, 2] * image.shape[0] / crop.shape[0]
        seen = (x >= 0) & (x < image.shape[1]) & (y >= 0) & (y < image.shape[0])
        x, y = np.where(seen, x, 0).astype(int), np.where(seen, y, 0).astype(int)
        squares = y // SQUARE * columns + x // SQUARE
        slots = y % SQUARE // SLOT_HEIGHT * (SQUARE // SLOT_WIDTH) + x % SQUARE // SLOT_WIDTH
        characters = np.zeros((rows * columns, SLOTS), dtype=np.int64)
        ids = self._vocabulary.ids(tokens)
        for number in np.flatnonzero(seen):
            if tokens[number] not in _PLACELESS:
                characters[squares[number], slots[number]] = 1 + ids[number]
        answer = np.array([*ids, self._vocabulary.end])
        guide = np.append(np.where(seen, squares, IGNORED), IGNORED)
        history, forks = _with_slips(answer, guide != IGNORED, rng), _forks(answer.tolist())
        again = self._said_again(answer, rng)
        copies = np.tile(again, min(int(_MOST_TIMES ** rng.uniform()), 1 + _MOST_AGAIN_TOKENS // max(1, len(again))))
        said, after = np.insert(np.arange(len(answer)), again.stop, copies), again.stop + len(copies)
        answer, guide, history, forks = (values[said] for values in (answer, guide, history, forks))
        answer[again.stop : after] = guide[again.stop : after] = IGNORED
        forks[after : after + _AFTER_STUTTER] |= len(again) > 0
        by_token = _places(rows, columns)
        places_said = np.where(guide[:, None] == IGNORED, IGNORED, by_token[guide.clip(min=0)])
        labels = {"characters": characters, "places": by_token}
        return Sample(image, prompt, answer, history, guide, forks, labels, {"places": places_said})

    def _said_again(self, answer: NDArray[np.int64], rng: np.random.Generator) -> range:
        """Return what the model is told it said twice or more in a row, words or letters: in most readings, nothing.

        Often the next word begins like the last of these, as in "it is": there it does say things twice.
        """
        words = [0, *(1 + np.flatnonzero(answer == self._space)).tolist()]
        by_words = rng.uniform() < 0.5
        starts = words if by_words else [*range(len(answer))]
        if rng.uniform() > _STUTTERS or len(starts) < 3:
            return range(0)
        ends = np.arange(1, len(starts))
        if by_words and rng.uniform() < 0.5:
            first_letters = answer[starts]
            alike = 1 + np.flatnonzero(first_letters[1:] == first_letters[:-1])
            ends = alike if len(alike) else ends
        end = int(rng.choice(ends))
        return range(starts[max(0, end - int(_MOST_AGAIN ** rng.uniform()))], starts[end])

    def _with_edges_moved(self, ids: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return a layout's tokens with every edge slightly off."""
        first = self._vocabulary.first_number
        moved = (ids + rng.normal(0, _MOVED_BY, len(ids)).round().astype(int)).clip(first, first + len(NUMBERS) - 1)
        return np.where(ids >= first, moved, ids)


def _with_slips(answer: NDArray[np.int64], seen: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a reading's tokens; in every other sample, some of those with ink are replaced by others of the answer."""
    share = max(0.0, rng.uniform(-_MAX_SLIPS, _MAX_SLIPS))
    return np.where(seen & (rng.uniform(size=len(answer)) < share), rng.choice(answer[:-1], len(answer)), answer)


def _forks(answer: Sequence[int]) -> NDArray[np.bool_]:
    """Return for each token of a reading whether another one follows the same tokens elsewhere in it."""
    forks = np.zeros(len(answer), dtype=bool)
    for count, reach in _LOOKS_ALIKE:
        after: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for number, token in enumerate(answer):
            last = tuple(answer[max(0, number - count) : number])
            rivals = [other for other in after[last] if number - other <= reach and answer[other] != token]
            forks[[number, *rivals]] |= bool(rivals)
            after[last].append(number)
    return forks


def thousandths(block: Block, width: int, height: int) -> tuple[int, int, int, int]:
    """Return a block's box in the layout's units, 0–999, rounded outwards."""
    x0, y0, x1, y1 = block.box
    low = np.floor((1000 * x0 / width, 1000 * y0 / height)).clip(0, 998).astype(int)
    high = np.ceil((1000 * x1 / width, 1000 * y1 / height)).clip(low + 1, 999).astype(int)
    return int(low[0]), int(low[1]), int(high[0]), int(high[1])


class _Told(NamedTuple):
    """A token of a layout, the image token that shows it, and its classes for the heads of these names."""

    token: str
    guide: int = IGNORED
    ranks: tuple[int, ...] = (IGNORED,) * 2
    links: tuple[int, ...] = (IGNORED,) * 4


def _layout_answer(blocks: Sequence[LayoutBlock], side: int) -> list[_Told]:
    """Return the layout of these blocks. side: of the layout image, in squares."""
    told = []
    before = (0, 0)
    for rank, (kind, (x0, y0, x1, y1)) in enumerate(blocks):
        start, end = (y * side // 1000 * side + x * side // 1000 for x, y in ((x0, y0), (x1, y1)))
        ranks, begun = (min(rank, MAX_RANK),) * 2, (x0 // EDGE_STEP, y0 // EDGE_STEP)
        left, top = (_Told(NUMBERS[edge], start, ranks, (*before, IGNORED, IGNORED)) for edge in (x0, y0))
        right, bottom = (_Told(NUMBERS[edge], end, ranks, (IGNORED, IGNORED, *begun)) for edge in (x1, y1))
        space = _Told(" ")
        told += [_Told("<|box_start|>"), left, space, top, space, right, space, bottom, _Told("<|box_end|>")]
        told += [_Told("<|ref_start|>"), _Told(kind, start), _Told("<|ref_end|>")]
        told += [_Told("<|rotate_up|>"), _Told("\n")]
        before = (x0 // EDGE_STEP, y1 // EDGE_STEP)
    return [*told, _Told(END)]


def _layout_labels(side: int, blocks: Sequence[LayoutBlock]) -> dict[str, NDArray[np.int64]]:
    """Return the labels of a layout's image tokens. side: of the layout image, px."""
    squares, units = side // SQUARE, 1000 / side  # units per px
    kinds = np.zeros((side // PATCH, side // PATCH), dtype=np.int64)
    corners = np.zeros((squares * squares, 2), dtype=np.int64)
    offsets = np.full((squares * squares, 4), IGNORED)
    ranks = np.full((squares * squares, 2), IGNORED)
    edges, links = (np.full((squares * squares, 4), IGNORED) for _ in range(2))
    before = (0, 0)
    for rank, (kind, (x0, y0, x1, y1)) in enumerate(blocks):
        left, top, right, bottom = (round(value / units / PATCH) for value in (x0, y0, x1, y1))
        kinds[top : max(bottom, top + 1), left : max(right, left + 1)] = 1 + BLOCK_TYPES.index(kind)
        for corner, (x, y) in enumerate(((x0, y0), (x1, y1))):
            column, row = int(x / units), int(y / units)
            square = row // SQUARE * squares + column // SQUARE
            corners[square, corner] = 1
            ranks[square, corner] = min(rank, MAX_RANK)
            links[square, 2 * corner : 2 * corner + 2] = (x0 // EDGE_STEP, y0 // EDGE_STEP) if corner else before
            offsets[square, 2 * corner : 2 * corner + 2] = column % SQUARE, row % SQUARE
            edges[square, 2 * corner : 2 * corner + 2] = x // EDGE_STEP, y // EDGE_STEP
        before = (x0 // EDGE_STEP, y1 // EDGE_STEP)
    by_square = kinds.reshape(squares, MERGE, squares, MERGE).transpose(0, 2, 1, 3).reshape(-1, MERGE * MERGE)
    marked = {"corners": corners, "offsets": offsets, "ranks": ranks, "links": links, "edges": edges}
    return {"kinds": by_square, **marked, "places": _places(squares, squares)}


def _places(rows: int, columns: int) -> NDArray[np.int64]:
    """Return the row and the column of each image token, limited to what a head can predict, [tokens, 2]."""
    return np.minimum(np.stack(np.divmod(np.arange(rows * columns), columns), axis=1), MAX_PLACE)


def _trimmed(chosen: list[int], block: Block) -> list[int]:
    """Return the marks without spaces at either end."""
    while chosen and block.tokens[chosen[0]] == " ":
        chosen = chosen[1:]
    while chosen and block.tokens[chosen[-1]] == " ":
        chosen = chosen[:-1]
    return chosen


def _paint_over_cut_characters(crop: NDArray[np.uint8], block: Block, chosen: list[int], left: int, top: float) -> None:
    """In each line, paint over what is left and right of the chosen characters, in the colour of the paper."""
    paper = np.uint8(np.percentile(crop, 85))
    lines = block.lines[chosen]
    for line in np.unique(lines):
        x0, y0, x1, y1 = ink_box(block.places[np.array(chosen)[lines == line]])
        rows = slice(max(0, int(y0 - top)), max(0, int(y1 - top) + 1))
        crop[rows, : max(0, int(x0 - left) - 1)] = paper
        crop[rows, max(0, int(x1 - left) + 2) :] = paper


def _with_line_breaks(
    block: Block, chosen: list[int], places: NDArray[np.float32]
) -> tuple[tuple[str, ...], NDArray[np.float32]]:
    """Return tokens and places with one space between lines, even if the window cut off a line's own."""
    tokens: list[str] = []
    kept: list[NDArray[np.float32]] = []
    nowhere = np.full(4, np.nan, dtype=np.float32)
    for number, index in enumerate(chosen):
        if block.tokens[index] == " " and tokens[-1] == " ":
            continue
        if number and block.lines[index] != block.lines[chosen[number - 1]] and tokens[-1] != " ":
            tokens.append(" ")
            kept.append(nowhere)
        tokens.append(block.tokens[index])
        kept.append(places[number])
    return tuple(tokens), np.stack(kept)
