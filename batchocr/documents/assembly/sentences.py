"""Texts that a page, a column or a table cuts: whether one goes on with another, and how they become one."""

from __future__ import annotations

import re
from typing import Final

SEEN: Final = 300
"""Characters that are looked at on either side of a joint, and of a caption, however long the texts are."""

_LONG_ENOUGH: Final = 40
"""A text of at least this many characters may have been cut by the end of its column; a shorter one has ended there. A
Chinese or Japanese character counts as three."""

_HYPHENS: Final = ("-", "\u2010", "\u00ad")
_CJK: Final = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
"""Han, kana and their punctuation. Not Hangul: Korean has spaces."""

_CLOSING: Final = re.compile(
    r"""(?:[)\]}"'”’»」』）】》*†‡\u00b9\u00b2\u00b3\u2070-\u2079]|\\\(\s*\^.{1,20}\\\)|<sup>[^<]{1,20}</sup>"""
    r"""|(?<=[^\W\d_][.!?。！？])\d{1,3}|(?<=[.!?。！？][)"”’」])\d{1,3})+$"""
)
"""What may stand behind the end of a sentence: brackets, quotation marks, the mark of a footnote."""
_LEADER: Final = re.compile(r"(?:(?:[.·]\s?){4,}|…{2,})\s*(?:\d{1,4}|[ivxlc]{1,6})?$")
"""Dots that lead to a page number, as in a table of contents."""
_FORMULA_END: Final = ("\\]", "$$")
_SENTENCE_END: Final = (".", "!", "?", ":", "…", "。", "！", "？", "：")
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(\[])(?:al|approx|ca|cf|e\. ?g|i\. ?e|z\. ?B|d\. ?h|bzw|Ch|Eqs?|Figs?|No|Nos|pp?|Refs?|Secs?|Tab|Vol|vs)"
    r"\.$"
)
_ITEM_MARK: Final = re.compile(
    r"(?P<bullet>[•●○◦▪■‣∙·–—*-])\s|\(?(?:(?P<number>\d{1,3})|(?P<letter>[A-Za-z]|[ivxIVX]{2,5}))[.)]\s"
    r"|\[(?P<reference>\d{1,4})\]|[(（]?(?P<chinese>[一二三四五六七八九十]{1,3})[、)）]|(?P<circled>[①-⑳])"
)


def item_mark(text: str) -> tuple[str | None, str]:
    """The kind of bullet or number that a list item begins with, and the bullet or number itself; (None, '') without
    one."""
    mark = _ITEM_MARK.match(text)
    return (mark.lastgroup, mark[mark.lastgroup]) if mark and mark.lastgroup else (None, "")


def goes_on(before: str, after: str, *, fits: bool) -> bool:
    """Whether the second text continues the first in mid-sentence, as where a page end cuts a paragraph in two.

    fits: whether both stand in columns of the same width. A second text that begins with a capital has to fit: not
    everything that ends without a full stop was cut. Behind a displayed formula it is another paragraph.
    """
    tail, head = before[-SEEN:].rstrip(), after[:SEEN].lstrip()
    if not tail or not head or _ITEM_MARK.match(head):
        return False
    if tail.endswith(_HYPHENS) and tail[-2:-1].isalnum():
        return head[0].isalnum()
    if _LEADER.search(tail):
        return False
    if tail.endswith(_FORMULA_END):
        return head[0].islower()
    tail = _CLOSING.sub("", tail)
    if tail.endswith(_SENTENCE_END):
        return bool(_ABBREVIATION.search(tail)) and (head[0].islower() or head[0].isdigit())
    if head[0].islower():
        return True
    return fits and len(tail) + 2 * len(_CJK.findall(tail)) >= _LONG_ENOUGH


def goes_on_within(before: str, after: str) -> bool:
    """Whether the second text, next in the same column, continues the first: a picture or the layout has parted them.

    It has to begin with a small letter, and the first to be long. Behind a displayed formula stands what is meant to.
    """
    return (
        after[0].islower()
        and len(before) >= _LONG_ENOUGH
        and not before.endswith(_FORMULA_END)
        and goes_on(before, after, fits=False)
    )


def between(before: str, after: str) -> tuple[str, str]:
    """The first text without a hyphen that only the cut has made, and what stands between it and the second.

    A hyphenated word becomes one word; Chinese and Japanese are joined without a space.
    """
    if before.endswith(_HYPHENS) and before[-2:-1].isalnum():
        is_cut = before[-1] == "\u00ad" or (before[-2].isalpha() and after[0].islower())
        return before[:-1] if is_cut else before, ""
    return before, "" if _CJK.match(before[-1]) and _CJK.match(after[0]) else " "
