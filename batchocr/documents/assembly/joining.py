"""Whether a text goes on in another, and what stands between the two once they are one."""

from __future__ import annotations

import re
from typing import Final

_SEEN: Final = 200
"""Characters on either side of the joint that are looked at, however long the texts are."""

_LONG_ENOUGH: Final = 40
"""Characters of a line that may have been cut by the end of its column, rather than ended there; a Chinese one counts
for three."""

_HYPHENS: Final = ("-", "\u2010", "\u00ad")
_CJK: Final = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
"""Han, kana and their punctuation. Not Hangul: Korean has spaces."""

_CLOSING: Final = re.compile(r"""(?:[)\]}"'”’»」』）】》*†‡\u00b9\u00b2\u00b3\u2070-\u2079]|\\\(\s*\^.{1,20}\\\))+$""")
"""What may stand behind the end of a sentence: brackets, quotation marks, the mark of a footnote."""
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
    """What kind of bullet or number an item of a list begins with, None if with none; and the bullet or number."""
    mark = _ITEM_MARK.match(text)
    return (mark.lastgroup, mark[mark.lastgroup]) if mark and mark.lastgroup else (None, "")


def goes_on(before: str, after: str, *, fits: bool) -> bool:
    """Whether the first text ends in mid-sentence and the second goes on with it, as the two halves of a paragraph do
    that a page end cut.

    fits: whether the second stands in a column as wide as the first's. Unless it begins with a small letter, that is
    needed too: not everything that ends without a full stop is cut off.
    """
    tail, head = before[-_SEEN:].rstrip(), after[:_SEEN].lstrip()
    if not tail or not head or _ITEM_MARK.match(head):
        return False
    if tail.endswith(_HYPHENS) and tail[-2:-1].isalnum():
        return head[0].isalnum()
    tail = _CLOSING.sub("", tail)
    if tail.endswith(_SENTENCE_END):
        return bool(_ABBREVIATION.search(tail)) and (head[0].islower() or head[0].isdigit())
    if head[0].islower():
        return True
    return fits and len(tail) + 2 * len(_CJK.findall(tail)) >= _LONG_ENOUGH


def joint(before: str, after: str) -> tuple[int, str]:
    """How many characters to take from the end of the first text, and what to put between the two: a word divided by a
    hyphen becomes whole, and between two Chinese or Japanese characters stands no space."""
    if not before or not after:
        return 0, ""
    if before.endswith(_HYPHENS) and before[-2:-1].isalnum():
        is_divided = before[-1] == "\u00ad" or (before[-2].isalpha() and after[0].islower())
        return int(is_divided), ""
    return 0, "" if _CJK.match(before[-1]) and _CJK.match(after[0]) else " "
