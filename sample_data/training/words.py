"""Text for training pages: sentences of common words, made-up words, names, numbers and plain random letters.

Much of it cannot be guessed, so that a model has to read it letter by letter.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FREQUENT, WORDS, NAMES = (
    tuple(part.split()) for part in Path(__file__).with_name("words.txt").read_text().split("\n\n")
)
_ONSETS = (
    "b bl br c ch cl d dr f fl g gl gr h j k kn l m n p ph pl pr qu r s sc sh sl sn sp st str sw t th tr v w wh y z"
)
_NUCLEI = "a ai au e ea ee ei i ia ie o oa oi oo ou u ue y"
_CODAS = "b ck d ff g l ll m n nd ng nt p r rd rk rn s sk ss st t tt th x zz"
_SYLLABLES = tuple(part.split() for part in (_ONSETS, _NUCLEI, _CODAS))
_ENDINGS = ("", "", "", "", "s", "ed", "ing", "er", "ly", "ness", "est", "’s", "'s", "ful", "ment")
_STOPS = (".",) * 16 + ("?",) * 3 + ("!",) * 2 + (":", ";", "…", ".)")
_OF_ONESELF = 0.006  # share of the words
_LONGEST_PHRASE = 13  # words
_NEAR = 15
"""Words within which a phrase often returns: "it is wrong. It is not wrong. It is only …"."""
_ALIKE = {letter: [word for word in FREQUENT if word[0] == letter] for letter in "abcdfhimnostw"}
_VARIED = 0.2  # share of the words that return
_BEGINS_ALIKE = 0.08  # share of the words that begin like the one before, as in "it is" and "that the"
_NARROWLY = 0.03
"""Share of the words that are followed by narrow ones: a square of the image shows letters of two of them."""
_NARROW = ("it", "is", "in", "if", "I", "its", "till", "ill", "fit", "lit", "sit", "I’ll", "still", "his", "tell")
_IN_CAPITALS = 0.01  # share of the words with which capitals begin
_SIGNS = "#$%&*+-/<=>@^_~|\\{}[]§°±×·é"


@dataclass(frozen=True, slots=True)
class Diction:
    """The shares of a text's words that are made up, random, or numbers; the rest are common words."""

    made_up: float
    random: float
    number: float


_PROSE = Diction(0.12, 0.03, 0.04)


def pick(rng: np.random.Generator, items: Sequence[str]) -> str:
    """Return one of the items, all equally likely (far quicker than `rng.choice`, which first makes them an array)."""
    return items[rng.integers(len(items))]


def draw_diction(rng: np.random.Generator) -> Diction:
    """Return a manner of writing: mostly prose, sometimes nonsense, sometimes figures."""
    kinds = (_PROSE, Diction(0.6, 0.1, 0.06), Diction(0.1, 0.7, 0.1), Diction(0.1, 0.1, 0.5))
    return kinds[rng.choice(4, p=(0.5, 0.25, 0.17, 0.08))]


def draw_number(rng: np.random.Generator) -> str:
    """Return a number as found in a text: a count, a price, a year, a share, a time, a date."""
    whole, small = int(10 ** rng.uniform(0, 6)), int(rng.integers(100))
    kinds = (
        str(int(10 ** rng.uniform(0, 4))),
        str(whole),
        f"{whole:,}",
        f"{whole % 1000}.{small}",
        f"{1500 + whole % 600}",
        f"{small}%",
        f"{pick(rng, ('$', '+', '-', '−', '£', '€', '±'))}{whole % 10000}",
        f"{small % 24}:{whole % 60:02d}",
        f"{1 + small % 28}/{1 + small % 12}/{1900 + small}",
        f"{small}–{small + whole % 50}",
        f"{small}°",
    )
    return pick(rng, kinds)


def draw_word(rng: np.random.Generator, diction: Diction) -> str:
    """Return one word, lower-case unless it is a name, random or made up."""
    kind = rng.uniform()
    if kind < diction.number:
        return draw_number(rng)
    if kind < diction.number + diction.random:
        return _random_letters(rng)
    if kind < diction.number + diction.random + diction.made_up:
        return _made_up(rng)
    kind = rng.uniform()
    if kind < 0.3:
        return pick(rng, FREQUENT)
    if kind < 0.36:
        return pick(rng, NAMES)
    return pick(rng, WORDS) + pick(rng, _ENDINGS)


def draw_sentence(rng: np.random.Generator, diction: Diction) -> str:
    """Return a sentence of three to twenty words with its punctuation."""
    words = [draw_word(rng, diction) for _ in range(rng.integers(3, 21))]
    words[0] = words[0][:1].upper() + words[0][1:]
    for place in range(len(words) - 1):
        words[place] = _punctuated(rng, words[place])
    return " ".join(words) + pick(rng, _STOPS)


def draw_text(rng: np.random.Generator, num_characters: int, diction: Diction | None = None) -> str:
    """Return sentences of about that many characters in all."""
    diction = diction or draw_diction(rng)
    text = draw_sentence(rng, diction)
    while len(text) < num_characters:
        text += " " + draw_sentence(rng, diction)
    return text


def draw_repetitive_text(rng: np.random.Generator, num_characters: int) -> str:
    """Return sentences in which words and phrases return, as in prose, which says "of the" again and again.

    What comes after a phrase that stands in a text twice can only be told by where one is. A model that never reads
    such texts finds its place by the last few letters alone, and loses it there. Hardly anything returns at once: a
    model that often read that would stutter.
    """
    words = ["I" if rng.uniform() < _OF_ONESELF else word for word in draw_text(rng, num_characters, _PROSE).split()]
    share = rng.uniform(0.0, 0.5)
    said: list[str] = []
    while len(said) < len(words):
        if said and rng.uniform() < share:
            first = int(rng.integers(max(0, len(said) - _NEAR) if rng.uniform() < 0.5 else 0, len(said)))
            phrase = said[first : min(first + int(_LONGEST_PHRASE ** rng.uniform()), len(said) - 1)]
            said += [_varied(rng, word) if rng.uniform() < _VARIED else word for word in phrase]
        elif said and rng.uniform() < _BEGINS_ALIKE and said[-1][0] in _ALIKE:
            said.append(pick(rng, _ALIKE[said[-1][0]]))
        elif rng.uniform() < _NARROWLY:
            narrow = rng.choice(_NARROW, int(rng.integers(2, 5)), replace=False)
            said += [str(word) + pick(rng, ("", "", "", ",", ";", ".")) for word in narrow]
        said.append(words[len(said) % len(words)])
    for first in np.flatnonzero(rng.uniform(size=len(said)) < _IN_CAPITALS):
        last = first + int(rng.integers(1, 6))
        said[first:last] = [word.upper() for word in said[first:last]]
    return " ".join(said)


def _varied(rng: np.random.Generator, word: str) -> str:
    """Return the word a little longer or shorter, as in "a barometer, two barometers"."""
    return (
        word[:-1] if len(word) > 2 and rng.uniform() < 0.5 else word + pick(rng, ("s", "s", ",", ".", ";", "e", "er"))
    )


def draw_phrase(rng: np.random.Generator, num_words: int) -> str:
    """Return a heading: words without a full stop, in sentence case, title case or capitals."""
    diction = draw_diction(rng)
    words = [draw_word(rng, diction) for _ in range(num_words)]
    case = rng.choice(3, p=(0.45, 0.4, 0.15))
    if case == 2:
        return " ".join(words).upper().replace("’S", "’s")
    capitals = len(words) if case == 1 else 1
    return " ".join(word[:1].upper() + word[1:] if i < capitals else word for i, word in enumerate(words))


def _random_letters(rng: np.random.Generator) -> str:
    length = int(rng.integers(1, 11))
    alphabet = (
        string.ascii_lowercase,
        string.ascii_letters,
        string.ascii_uppercase,
        string.ascii_letters + string.digits,
    )
    letters = "".join(rng.choice(list(alphabet[rng.choice(4, p=(0.45, 0.25, 0.1, 0.2))]), length))
    if rng.uniform() < 0.12:
        place = int(rng.integers(length + 1))
        letters = letters[:place] + pick(rng, _SIGNS) + letters[place:]
    return letters


def _made_up(rng: np.random.Generator) -> str:
    word = ""
    for _ in range(rng.choice((1, 2, 3, 4), p=(0.3, 0.4, 0.2, 0.1))):
        onsets, nuclei, codas = _SYLLABLES
        word += pick(rng, onsets) + pick(rng, nuclei)
        word += pick(rng, codas) if rng.uniform() < 0.6 else ""
    return word.capitalize() if rng.uniform() < 0.12 else word


def _punctuated(rng: np.random.Generator, word: str) -> str:
    kind = rng.uniform()
    if kind < 0.08:
        return word + ","
    if kind < 0.1:
        return word + pick(rng, (";", ":", " –", " —", "-" + word))
    if kind < 0.12:
        left, right = (("“", "”"), ('"', '"'), ("(", ")"), ("‘", "’"), ("[", "]"))[rng.integers(5)]
        return left + word + right
    return word
