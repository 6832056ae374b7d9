"""A page's blocks as drafts of pieces: what belongs together on the page is together, in reading order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from batchocr.data import Block
from batchocr.documents.assembly.captions import CODE, FIGURES, TABLES, choose_containers, choose_hosts
from batchocr.documents.assembly.document import Place
from batchocr.documents.assembly.draft import Draft

_LEFT_OUT: Final = frozenset({"header", "footer", "page_number", "aside_text"})
"""What belongs to the sheet of paper, not to the text."""
_ITEMS: Final = frozenset({"text", "list_item", "ref_text"})


@dataclass(slots=True)
class PageDrafts:
    """The pieces of a page. body: in reading order. footnotes: those at the foot of the page."""

    body: list[Draft] = field(default_factory=list)
    footnotes: list[Draft] = field(default_factory=list)


def page_drafts(page_index: int, blocks: Sequence[Block]) -> PageDrafts:
    """The pieces of a page.

    MinerU's lists and groups of pictures are boxes around other blocks and say nothing themselves: of a list, its items
    are its lines; a group stands for itself only if it has no pictures.
    """
    drafts = {index: _draft(page_index, index, block) for index, block in enumerate(blocks) if _says(block)}
    list_of = choose_containers(blocks, "list", _ITEMS)
    group_of = choose_containers(blocks, "image_block", {"image", "chart"})
    for index in {*list_of.values(), *group_of.values()}:
        drafts.pop(index, None)
    hosts = choose_hosts(blocks, [index for index in drafts if blocks[index].type in FIGURES | TABLES | CODE])
    page = PageDrafts()
    last_text: Draft | None = None
    list_drafts: dict[int, Draft] = {}
    for index, draft in drafts.items():
        block = blocks[index]
        if index in hosts:
            host = drafts[hosts[index]]
            (host.captions if "caption" in block.type else host.footnotes).append(draft)
        elif block.type == "page_footnote":
            page.footnotes.append(draft)
        elif block.type == "text" and block.merge_prev and last_text is not None:
            last_text.go_on_with(draft)
        elif index in list_of:
            last_text = _add_item(page.body, draft, list_drafts, list_of[index])
        else:
            draft.goes_on = block.merge_prev
            page.body.append(draft)
            last_text = draft if block.type == "text" else last_text
    return page


def _says(block: Block) -> bool:
    """Whether the block has anything to show."""
    if block.type in FIGURES:
        return True
    return block.type not in _LEFT_OUT and bool(block.content and block.content.strip())


def _draft(page_index: int, index: int, block: Block) -> Draft:
    content = (block.content or "").strip()
    return Draft(
        type="image" if block.type == "image_block" else block.type,
        texts=[content] if content else [],
        places=[Place(page_index, block.bbox, index)],
        description=block.description if block.type in FIGURES else None,
    )


def _add_item(body: list[Draft], item: Draft, list_drafts: dict[int, Draft], container: int) -> Draft:
    """Add an item to its list, and return the list; begin it anew if something else has come between."""
    item.texts = [" ".join(item.texts[0].split())]
    begun = list_drafts.get(container)
    if begun is not None and body[-1] is begun:
        begun.add_items(item)
        return begun
    item.type = "list"
    list_drafts[container] = item
    body.append(item)
    return item
