"""Texts that a page, a column or a table cuts: whether one goes on with another, and how they become one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias

import regex

from batchocr.documents.assembly.item_marks import FIRST_ITEMS, begins_alike, item_mark

Words: TypeAlias = Callable[[], Collection[str]]
"""The words of a document in small letters, those with hyphens whole."""

SEEN: Final = 300
"""Characters that are looked at on either side of a joint, and of a caption, however long the texts are."""

_LONG_ENOUGH: Final = 40
"""The fewest characters of a text that may have been cut by the end of its column; a shorter one has ended there. A
Chinese or Japanese character counts as three."""

_COMMAS: Final = (",", "，", "、")
_SEMICOLONS: Final = (";", "；", "؛")
_HYPHENS: Final = ("-", "\u2010", "\u00ad")
_AND: Final = re.compile(r"(?:and|or|nor|to|und|oder|bis|bzw|sowie|et|ou|y|o|e|u|en|i|и|или|och|og|eller)\b")
_WORD: Final = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_LAST_WORD: Final = re.compile(rf"{_WORD.pattern}$")
_CJK: Final = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
"""Han, kana and their punctuation. Not Hangul: Korean has spaces."""

_CLOSING: Final = re.compile(
    r"""(?:\s?[)\]}"'”’»›」』）】》*†‡\u00b9\u00b2\u00b3\u2070-\u2079]|\\\(\s*\^.{1,20}\\\)|<sup>[^<]{1,20}</sup>"""
    r"""|(?<=[^\W\d_][.!?。！？])\d{1,3}|(?<=[^\W\d_]{4}[.!?])\s\d{1,3}|(?<=[.!?。！？][)"”’」])\d{1,3}"""
    r"""|(?<=[)"”’»][.!?])\s?\d{1,3})+$"""
)
"""What may stand behind the end of a sentence: brackets, quotation marks, the mark of a footnote."""
_LEADER: Final = re.compile(r"(?:(?:[.·]\s?){4,}|…{2,})\s*(?:\d{1,5}|[ivxlc]{1,6})?$")
"""Dots that lead to a page number, as in a table of contents."""
_FORMULA_END: Final = ("\\]", "$$")
_SENTENCE_END: Final = regex.compile(r"[\p{Sentence_Break=STerm}\p{Sentence_Break=ATerm}:：…]$")
_SENTENCE: Final = regex.compile(r"\p{Sentence_Break=STerm}|(?<!\d)\.\d{0,3}(?:\s|$)")
_NO_CASE: Final = regex.compile(r"[\p{Lo}\p{M}\p{Han}]")
_PARTS: Final = re.compile(r",[^,]*,")
"""A part of a list within a sentence, as of names."""
ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(\[])(?:al|approx|ca|cf|e\. ?g|i\. ?e|z\. ?B|d\. ?h|bzw|Ch|Eqs?|Figs?|No|Nos|pp?|Refs?|Secs?|Tab|Vol|vs)"
    r"\.$"
)
_LEADS_ON: Final = re.compile(
    r"\b(?i:an|the|of|in|on|at|to|for|from|by|with|into|under|than|as|its|their|is|are|was|were|be|has|have|which|that"
    r"|der|die|das|den|dem|des|eine?[mnrs]?|von|vom|zu[mr]?|mit|im|am|auf|für|bei|nach|über|durch|bis|seit|ab|gemäß|laut"
    r"|wegen|aus|dass|ist|sind|wurden?|le|la|les|une?|du|de|aux?|en|dans|par|pour|sur|avec|que|qui|est|sont|el|los|las"
    r"|del?|al|con|por|para|se|il|di|da|dos?|na|em)$|\b(?:a|no)$|[,，、]$|\b(?:Mrs?|Ms|Dr|Prof|Hon|St)\.$"
    r"|(?<![;,；，]\s)\b(?:(?i:and|or|und|oder|sowie|et|ou|и|или)|[yoe])$|[和与及&]$"
)
"""What no text ends with: a comma, an article, a preposition, a verb that helps another, what a name follows, "and"."""
_BRACKET: Final = re.compile(r"[(（][^()（）]*$")
"""A pattern of a bracket that is still open at the end of a text."""
_SMALL_HALF: Final = re.compile(r"(?<![\w-])(?!(?:all|anti|cross|ex|mid|neo|non|post|pre|pro|self|un)-)[a-z]+-$")
"""The half of a word that does not go on with a capital."""
_WITHIN_SENTENCES: Final = ("number", "reference", "section", "question", "article", "speaker")
"""Marks that may stand within a sentence."""


def goes_on(before: str, after: str, *, fits: bool, begins: str = "") -> bool:
    """Whether the second text continues the first in mid-sentence, as where a page end cuts a paragraph in two.

    fits: whether both stand in columns of the same width. begins: how the paragraph or item of the first begins. A
    second text that begins with a capital has to fit, and one of both has to have a sentence that ends: not everything
    that ends without a full stop was cut. Behind a displayed formula it is another paragraph.
    """
    tail, head = before[-SEEN:].rstrip(), after[:SEEN].lstrip()
    if not tail or not head or begins_alike(begins, head) or _is_item(tail, head):
        return False
    if tail.endswith(_HYPHENS) and tail[-2:-1].isalnum():
        return head[0].isalnum() and not (head[0].isupper() and _SMALL_HALF.search(tail))
    if _LEADER.search(tail):
        return False
    if tail.endswith(_FORMULA_END):
        return head[0].islower()
    if ABBREVIATION.search(tail):
        return not head[0].isupper()
    lacks_word, is_within = _lacks_word(tail), _BRACKET.search(tail) is not None
    tail = _CLOSING.sub("", tail)
    if _SENTENCE_END.search(tail) and not lacks_word:
        return False
    if head[0].islower():
        return True
    if not fits or len(tail) + 2 * len(_CJK.findall(tail)) < _LONG_ENOUGH:
        return False
    if lacks_word or is_within or _NO_CASE.match(head):
        return True
    is_fragment = len(after) < _LONG_ENOUGH and not _SENTENCE.search(after)
    if is_fragment or (tail.endswith(_SEMICOLONS) and head[0].isupper()):
        return False
    are_lists = _PARTS.search(before) and _PARTS.search(after)
    return bool(are_lists or _SENTENCE.search(before) or _SENTENCE.search(after))


def are_one_line(before: str, after: str) -> bool:
    """Whether two lines, as of a heading or a caption, are one that is cut in mid-sentence."""
    is_led_on = _lacks_word(before[-SEEN:]) and item_mark(after) == (None, "")
    return is_led_on or goes_on(before, after, fits=False)


def _lacks_word(tail: str) -> bool:
    """Whether a text ends with what no text ends with."""
    return _LEADS_ON.search(tail) is not None


def _is_item(tail: str, head: str) -> bool:
    """Whether a text begins with the mark of an item.

    Behind an open end it may be none, unless it is the first of a list: a number, a name's letter, an article referred
    to.
    """
    kind, mark = item_mark(head)
    is_first = mark.lower() in FIRST_ITEMS or mark.endswith(".1")
    is_listed = kind == "number" and tail.endswith(_COMMAS)
    may_be_none = (kind in _WITHIN_SENTENCES or (mark.isupper() and head.startswith(mark))) and not (
        is_first or is_listed
    )
    return kind is not None and not (may_be_none and (_lacks_word(tail) or ABBREVIATION.search(tail)))


def has_inner_sentence(text: str) -> bool:
    """Whether a sentence ends in the text, and another begins."""
    found = _SENTENCE.search(text)
    return found is not None and bool(text[found.end() :].strip())


def may_be_parted(before: str, after: str) -> bool:
    """Whether a picture or the layout may have parted these texts in mid-sentence, which stand in one column.

    The second has to begin with a small letter, and the first to be long. Behind a displayed formula stands what is
    meant to.
    """
    return after[0].islower() and len(before) >= _LONG_ENOUGH and not before.endswith(_FORMULA_END)


def between(before: str, after: str, words: Words = frozenset) -> tuple[str, str]:
    """The first text without a hyphen that only the cut has made, and what stands between it and the second.

    A hyphenated word becomes one word, unless only the form with the hyphen is among `words`; Chinese
    and Japanese are joined without a space.
    """
    if not (before.endswith(_HYPHENS) and before[-2:-1].isalnum()):
        return before, "" if _CJK.match(before[-1]) and _CJK.match(after[0]) else " "
    if before[-1] == "\u00ad":
        return before[:-1], ""
    if _AND.match(after):
        return before, " "
    if not (before[-2].isalpha() and after[0].islower()):
        return before, ""
    first, second = _LAST_WORD.search(before[-SEEN:-1]), _WORD.match(after)
    half, rest = (found[0].lower() if found else "" for found in (first, second))
    is_known = f"{half}-{rest}" in words() and f"{half}{rest}" not in words()
    return (before, "") if len(half) == 1 or half.count("-") > 1 or is_known else (before[:-1], "")


def words_in(texts: Iterable[str]) -> set[str]:
    """The words of these texts, as in `Words`."""
    return {word for text in texts for word in _WORD.findall(text.lower())}
