"""Composes training pages: which blocks are where, in which order, in one or two columns. Lengths are in points."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sample_data.training.flow import Flow, PageStyle, pick_share
from sample_data.training.truth import Block, BlockType, block_of
from sample_data.training.typesetting import FAMILIES, Sheet, Style, break_lines, line_break, set_line, text_width
from sample_data.training.words import draw_phrase, draw_text, pick


@dataclass(frozen=True, slots=True)
class Contents:
    """The share of each kind of block on a page; the rest are paragraphs."""

    heading: float
    list: float
    table: float
    formula: float
    figure: float


_KINDS_OF_PAGE = (
    Contents(0.15, 0.08, 0.0, 0.0, 0.0),
    Contents(0.18, 0.12, 0.12, 0.12, 0.08),
    Contents(0.1, 0.05, 0.45, 0.0, 0.05),
    Contents(0.05, 0.02, 0.0, 0.5, 0.02),
    Contents(0.0, 0.0, 0.0, 0.0, 0.0),
)
_SHARES = (0.3, 0.4, 0.1, 0.1, 0.1)
_PAPERS = ((595.0, 842.0), (595.0, 842.0), (612.0, 792.0), (420.0, 595.0), (499.0, 709.0))


def draw_page_style(rng: np.random.Generator) -> PageStyle:
    """Return how a page looks."""
    width, height = _PAPERS[rng.integers(len(_PAPERS))]
    family = FAMILIES[rng.choice(3, p=(0.38, 0.47, 0.15))]
    columns = 2 if rng.uniform() < 0.25 and width > 450 else 1
    size = float(np.clip(rng.normal(10.6, 1.4), 8.5, 13.5)) if rng.uniform() < 0.88 else rng.uniform(13, 18)
    body = Style(
        family, "regular", min(size, 11.0) if columns == 2 else size, rng.uniform(1.12, 1.6), rng.uniform() < 0.3
    )
    heading_family = family if rng.uniform() < 0.7 else pick(rng, FAMILIES)
    face = ("bold", "bold-italic", "italic")[rng.choice(3, p=(0.85, 0.05, 0.1))]
    spaced = rng.uniform() < 0.9
    side = width * rng.uniform(0.08, 0.16)
    return PageStyle(
        width=width,
        height=height,
        left=side,
        right=side * rng.uniform(0.8, 1.1),
        top=height * rng.uniform(0.08, 0.13),
        bottom=height * rng.uniform(0.08, 0.13),
        columns=columns,
        body=body,
        heading=Style(heading_family, face, body.size * rng.uniform(1.0, 1.7), 1.2),
        justified=rng.uniform() < 0.55,
        indent=0.0 if spaced else body.size * rng.uniform(1, 2.5),
        gap=body.size * (rng.uniform(0.45, 1.2) if spaced else rng.uniform(0, 0.15)),
        emphasis=0.04 if rng.uniform() < 0.4 else 0.0,
    )


def compose_page(rng: np.random.Generator) -> Sheet:
    """Return a typeset page with its blocks in reading order: the header first, the footer last."""
    style = draw_page_style(rng)
    sheet = Sheet(style.width, style.height)
    _set_running_line(rng, sheet, style, at_top=True)
    top = style.top + (_set_title(rng, sheet, style) if rng.uniform() < 0.3 else 0.0)
    bottom = style.height - style.bottom
    if rng.uniform() < 0.25:
        bottom -= rng.uniform(0.1, 0.6) * (bottom - top)  # the last page of something
    note, bottom = _set_footnote(rng, sheet, style, bottom) if rng.uniform() < 0.15 else ([], bottom)
    _set_columns(rng, sheet, style, top, bottom)
    sheet.blocks += note
    _set_running_line(rng, sheet, style, at_top=False)
    return sheet


def _set_columns(rng: np.random.Generator, sheet: Sheet, style: PageStyle, top: float, bottom: float) -> None:
    contents = _KINDS_OF_PAGE[rng.choice(len(_KINDS_OF_PAGE), p=_SHARES)]
    gutter = style.body.size * rng.uniform(1.6, 3)
    width = (style.width - style.left - style.right - (style.columns - 1) * gutter) / style.columns
    carried: list[str] = []
    for column in range(style.columns):
        left = style.left + column * (width + gutter)
        flow = Flow(rng, sheet, style, (left, top, left + width, bottom))
        if carried:
            carried = flow.paragraph(carried, indented=False)
        while flow.has_room() and not carried:
            carried = _set_next(rng, flow, contents)
    if style.columns == 2 and rng.uniform() < 0.2:
        x = style.left + width + gutter / 2
        sheet.rule(x, top, x, bottom, 0.4)


def _set_next(rng: np.random.Generator, flow: Flow, contents: Contents) -> list[str]:
    """Set a random block. Returns the words of a paragraph that did not fit."""
    kind = rng.uniform()
    for set_block, share in (
        (flow.heading, contents.heading),
        (flow.list, contents.list),
        (flow.table, contents.table),
        (flow.formula, contents.formula),
        (flow.figure, contents.figure),
    ):
        kind -= share
        if kind < 0:
            set_block()
            return []
    return flow.paragraph(draw_text(rng, int(np.exp(rng.uniform(np.log(60), np.log(1100))))).split())


def _set_title(rng: np.random.Generator, sheet: Sheet, style: PageStyle) -> float:
    """Set a title over all columns, perhaps with an author. Returns the height it takes."""
    title = Style(style.heading.family, style.heading.face, style.body.size * rng.uniform(1.6, 2.4), 1.2)
    width = style.width - style.left - style.right
    lines = break_lines(draw_phrase(rng, int(rng.integers(2, 9))).split(), title, width)
    share = pick_share(rng)
    y = style.top
    marks = []
    for number, words in enumerate(lines):
        y += title.size
        x = style.left + share * (width - text_width(" ".join(words), title))
        marks += [line_break(marks[-1])] if marks else []
        marks += set_line(sheet, x, y, [(word, title) for word in words], gap=text_width(" ", title), line=number)
        y += title.size * (title.leading - 1)
    sheet.blocks.append(block_of("title", marks))
    if rng.uniform() < 0.6:
        author = Style(style.body.family, "italic", style.body.size * rng.uniform(0.95, 1.15))
        y += 1.3 * author.size
        words = draw_phrase(rng, int(rng.integers(2, 6)))
        x = style.left + share * (width - text_width(words, author))
        sheet.blocks.append(block_of("text", sheet.text(x, y, words, author)))
    return y - style.top + style.body.size * rng.uniform(1, 3)


def _set_footnote(rng: np.random.Generator, sheet: Sheet, style: PageStyle, bottom: float) -> tuple[list[Block], float]:
    """Set a note under a short rule. Returns its block and where the text above must end."""
    small = replace(style.body, size=0.8 * style.body.size, leading=1.2)
    words = f"{pick(rng, ('*', '1', '†', '2'))} {draw_text(rng, 50)}".split()
    line = break_lines(words, small, style.width - style.left - style.right)[0]
    sheet.rule(style.left, bottom - 1.5 * small.size, style.left + 90, bottom - 1.5 * small.size)
    faces = [(word, small) for word in line]
    marks = set_line(sheet, style.left, bottom - 0.3 * small.size, faces, gap=text_width(" ", small), line=0)
    return [block_of("page_footnote", marks)], bottom - 2 * small.size


def _set_running_line(rng: np.random.Generator, sheet: Sheet, style: PageStyle, *, at_top: bool) -> None:
    """Set a running header or footer: a name, a page number, both, or nothing."""
    if rng.uniform() < 0.35:
        return
    margin = style.top if at_top else style.bottom
    small = Style(style.heading.family, pick(rng, ("regular", "bold", "italic")), rng.uniform(7.5, 9.5))
    distance = margin * rng.uniform(0.45, 0.65)
    y = distance if at_top else style.height - distance + small.size
    num_number_kinds = 1 + (rng.uniform() < 0.2)
    number = (str(rng.integers(1, 900)), f"– {rng.integers(1, 90)} –")[num_number_kinds - 1]
    width = style.width - style.left - style.right
    kind: BlockType = "header" if at_top else "footer"
    pieces: list[tuple[BlockType, str, float]] = []
    if rng.uniform() < 0.75:
        pieces.append((kind, draw_phrase(rng, int(rng.integers(2, 6))), 0.0))
        if rng.uniform() < 0.3:
            pieces.append((kind, draw_phrase(rng, int(rng.integers(1, 3))), 0.5))
    if rng.uniform() < 0.6 or not pieces:
        pieces.append(("page_number", number, 1.0 if pieces else 0.5))
    for piece, words, share in pieces:
        x = style.left + share * (width - text_width(words, small))
        if piece != "page_number" and x + text_width(words, small) > style.width - 1.2 * style.right:
            continue
        sheet.blocks.append(block_of(piece, sheet.text(x, y, words, small)))
    if rng.uniform() < 0.3:
        y += 0.6 * small.size if at_top else -1.4 * small.size
        sheet.rule(style.left, y, style.width - style.right, y)
