"""What an item, a clause, an article, a question or a speaker begins with."""

from __future__ import annotations

from typing import Final, Literal

import regex

MarkKind = Literal[
    "bullet", "number", "letter", "reference", "chinese", "circled", "section", "question", "article", "speaker"
]

FIRST_ITEMS: Final = ("1", "a", "i", "一")
"""The numbers and letters with which items begin."""
_BEHIND: Final = r"(?:(?:(?<!\p{Latin})\s)?[.)](?:[\s\u200b]|(?=\p{Han}))|[）、．])"
"""What stands behind the number or the letter of an item."""
_LETTERS: Final = r"[\p{Latin}\p{Cyrillic}\p{Greek}\p{Arabic}\p{Hebrew}]"
_HAN: Final = "[0-9０-９一二三四五六七八九十百零〇两]"
_ARTICLE: Final = (
    r"(?i:art(?:icle|ikel|ículo|icolo|igo|\.)|section|abschnitt|clause|schedule|chapter|kapitel|annex|appendix|step"
    r"|schritt|question|frage|rule|part|teil|статья|пункт|глава|§)"
)
_PATTERNS: Final[tuple[tuple[MarkKind, str], ...]] = (
    ("bullet", r"([\p{So}\p{Co}•‣∙·–—−*-]|\(\*+\))[\s\u200b]"),
    ("number", rf"[(（]?(\d{{1,3}}){_BEHIND}"),
    ("letter", rf"[(（]?({_LETTERS}|[ivxIVX]{{2,5}}|([a-z])\2){_BEHIND}"),
    ("reference", r"\[(\d{1,4})\]"),
    ("chinese", r"[(（]?([一二三四五六七八九十]{1,3})[、)）]"),
    ("circled", r"([①-⑳])"),
    ("section", r"(\d{1,3}(?:\.(?:\d{1,3}|[a-z]\b)){1,4})(?:\.\s|\(\w|\s+(?=[\p{Lu}\p{Lo}]))"),
    ("question", r"(\d{1,3})\s+(?=\p{Lu}\p{Ll}[^.!]*\?)"),
    ("article", rf"((?=\p{{Lu}}|§){_ARTICLE}\s*\d[\d.]*)(?=[\s.:—–-]*(?:\p{{Lu}}|$))"),
    ("article", rf"(第{_HAN}{{1,5}}[条條款章节節編编部项項])(?=[\s:：（(]|$)"),
    ("article", r"(제\s?\d{1,4}\s?[조항장절])(?=[(（:]|\s(?!제)|$)"),
    ("article", r"((?:ال)?مادة\s*(?:\(?\d+\s*\)?|\p{L}+))\s*[:.–-]"),
    ("speaker", r"(\p{Lu}(?:[\p{Lu}.'’ -]{0,30}|[\w.'’-]+(?: \p{Lu}[\w.'’-]+){1,3}):)\s"),
)
_MARKS: Final = [(kind, regex.compile(pattern)) for kind, pattern in _PATTERNS]
_NUMBER: Final = regex.compile(r"(\W{0,2}(?:[\p{L}\p{M}]{1,12}\.?\s?)?)((?:\d{1,3}\.)*)(\d{1,3})\b")
_LETTER: Final = regex.compile(r"(\W{0,2}第?)([\p{L}\p{N}])[条條款章）).、．:：\s-]")
_SEQUENCES: Final = (
    "abcdefghijklmnopqrstuvwxyz 가나다라마바사아자차카타파하 אבגדהוזחטי أبجدهوزحطي"
    " アイウエオカキクケコ 一二三四五六七八九十"
)
_NAME: Final = regex.compile(r"(?!\p{Ll})[\p{L}\p{M}.'’ ]{1,30}[:：]")


def item_mark(text: str) -> tuple[MarkKind | None, str]:
    """The kind of bullet, number or name that an item begins with, and the bullet, number or name itself; (None, '')
    without one."""
    found = ((kind, pattern.match(text.lstrip())) for kind, pattern in _MARKS)
    return next(((kind, mark[1]) for kind, mark in found if mark), (None, ""))


def begins_alike(before: str, after: str) -> bool:
    """Whether the second text begins with the number or letter that follows the one with which the first begins, or
    both with a name and a colon, as speakers do."""
    before = before.lstrip()
    one, other = _NUMBER.match(before), _NUMBER.match(after)
    if one and other and one.group(1, 2) == other.group(1, 2) and int(other[3]) == int(one[3]) + 1:
        return True
    one, other = _LETTER.match(before), _LETTER.match(after)
    is_next = one and other and one[1] == other[1] and one[2] + other[2] in _SEQUENCES
    return bool(is_next or (_NAME.match(before) and _NAME.match(after)))
