"""Why a page was not read in full, in the words of its row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from batchocr.data import Completion, counted
from batchocr.pages.kinds import kind_of
from batchocr.pages.protocol.base import ReadBlock
from batchocr.pages.protocol.ink import Ink

_MAX_NAMED = 10
"""The most numbers in one list: if there are more, they are counted."""

_MODEL_TOKEN: Final = re.compile(r"<(?:[flrux]cel|ecel|nl)>|<\|[a-z_]+\|>")
"""A token of the model's own: of a table's structure, or a special one. No text of a page has it, but by chance."""

_NO_TEXT: Final = "[Non-Text]"


def layout_shortfalls(layout: Completion, num_blocks: int, num_left_out: int, max_area: float, ink: Ink) -> list[str]:
    """What is wrong with a page's layout. num_blocks: the blocks in it. num_left_out: blocks left out, because the
    others already cover `max_area` pages together."""
    found = []
    if layout.finish_reason == "length":
        found.append("the layout hit its token limit")
    if layout.finish_reason == "repetition":
        found.append("the layout looped")
    if layout.text.strip() and not num_blocks and not ink.is_empty:
        said = counted(len(layout.text), "character")
        found.append(f"no text was found, though there is ink: the model's layout, {said}, names no block")
    if num_left_out:
        left_out = f"{counted(num_left_out, 'block')} left out"
        found.append(f"the layout names blocks of more than {max_area:g} pages together: {left_out}")
    return found


def answer_shortfalls(answers: Sequence[tuple[Completion, int | None]]) -> list[str]:
    """What is wrong with the answers about a page's blocks, each given with the index of its block in the row; None if
    the row has no such block."""
    errors = [completion.error for completion, _ in answers if completion.error is not None]
    read = [(completion.finish_reason, place) for completion, place in answers if completion.error is None]
    found = []
    for ending, said in (("length", "hit the token limit"), ("repetition", "looped")):
        if ended := [place for reason, place in read if reason == ending]:
            found.append(f"{name_blocks(ended)} {said}")
    if errors:
        failed = name_blocks([place for completion, place in answers if completion.error is not None])
        others = ", and others for other reasons" if len(set(errors)) > 1 else ""
        found.append(f"{failed} could not be read: {errors[0]}{others}")
    return found


def block_shortfalls(
    blocks: Sequence[tuple[ReadBlock, Completion | None]], unparsed_tables: Sequence[int], ink: Ink
) -> list[str]:
    """What is wrong with what a page's blocks hold, each given with its answer, if it has one. unparsed_tables: indices
    of those whose text is no table."""
    found = []
    if unparsed_tables:
        found.append(f"{name_blocks(unparsed_tables, 'table')} could not be parsed")
    if empty := [
        index for index, (block, answer) in enumerate(blocks) if _is_empty(block, answer) and ink.fills(block.bbox)
    ]:
        found.append(f"nothing was read in {name_blocks(empty)}, though there is ink")
    if leaking := [index for index, (block, _) in enumerate(blocks) if _leaks_tokens(block)]:
        found.append(f"the model's own tokens are in {name_blocks(leaking)}")
    return found


def name_blocks(places: Sequence[int | None], noun: str = "block") -> str:
    """ "block 3" or "blocks 3, 7 and 12": indices in the row's `blocks`. None: a block that the row leaves out."""
    numbers = sorted({place for place in places if place is not None})
    num_left_out = places.count(None)
    if not numbers:
        return f"{counted(num_left_out, noun)} that the row leaves out"
    words = [str(number) for number in numbers[:_MAX_NAMED]]
    if len(numbers) > _MAX_NAMED:
        words.append(f"{len(numbers) - _MAX_NAMED} more")
    listed = " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    left_out = f" (and {num_left_out} that the row leaves out)" if num_left_out else ""
    return f"{noun if len(numbers) == 1 else f'{noun}s'} {listed}{left_out}"


def is_unparsed(block: ReadBlock, completion: Completion | None) -> bool:
    """Whether the model gave text for this table that did not become HTML."""
    return (
        kind_of(block.type).role == "table"
        and completion is not None
        and completion.text.strip() not in ("", _NO_TEXT)
        and not (block.content or "").startswith("<table")
    )


def field_of(answer: str, name: str) -> str:
    """A field of the model's answer about a figure: class, sub_class, caption or content; '' if it has none."""
    _, _, rest = answer.partition(f"<|{name}_start|>")
    value, end, _ = rest.partition(f"<|{name}_end|>")
    return value.strip() if end else ""


def _is_empty(block: ReadBlock, completion: Completion | None) -> bool:
    """Whether nothing was read in this block, though the model did not say that there is no text, and nothing else is
    known to have gone wrong with it."""
    return (
        completion is not None
        and completion.error is None
        and completion.finish_reason == "stop"
        and completion.text.strip() != _NO_TEXT
        and not (block.content or "").strip()
    )


def _leaks_tokens(block: ReadBlock) -> bool:
    """Whether the text of a block that is no table has tokens of the model's own."""
    return kind_of(block.type).role != "table" and _MODEL_TOKEN.search(block.content or "") is not None
