"""English for the exam: sentences of a small grammar that training never uses, mostly of words that it does not know.

Like prose, it says "at the end of the" again and again.
"""

from __future__ import annotations

import re

import numpy as np

from sample_data.training.words import pick

_FORMS = """
The {thing} in the {place} had been {done} by {who}, and nobody could say when it would be {done} again.
{Who} said that the {thing} was {quality}, that it had always been so, and that it would not be {done} in her time.
If you go down to the {place} at the end of {month}, you will see {number} {things} and not one {thing}.
It is not that the {thing} is {quality}; it is only that the {other} is more so.
There is a {thing} at the end of the {place}, and at the end of the {thing} there is a {other}.
On the first day we {did} the {thing}; on the second day we {did} the {other}; on the third it rained.
Of the {number} {things} that were sent to {town}, {few} were {done} and the rest were {quality}.
“I have never {done} a {thing},” said {who}, “and I do not intend to begin with this one.”
Whoever has once {done} a {thing} will not need to be told how a {other} is {done}.
{Who} and {who} agreed about the {thing}, but not about the {other}, and so the {place} was left as it was.
In {month} the {place} is {quality} and in the winter it is not there at all.
You will need a {thing}, two {things}, a {quality} {other} and a good deal of patience.
The more often a {thing} is {done}, the less it looks like a {other}.
Nothing in the {place} is as {quality} as the {thing}, and nothing is as {quality} as the {other} beside it.
At {number} minutes past {hour} the {thing} was still in the {place}, where {who} had left it.
Take the {thing} out of the {place}, put it on the {other}, and leave it there until {hour} o’clock.
Some of the {things} were {quality}, some of the {things} were {done}, and some were both.
What became of the {thing} is known to {who} alone, who lives in {town} and does not answer letters.
It was {done} in {year}, and again in {year}, and each time by somebody who had not been asked.
The {thing} cost {number} shillings; the {other} cost nothing, and has lasted longer.
When the {place} was {done} they found a {thing} under it, and when the {thing} was {done} they found a {other}.
As to the {thing}, it can be {done} by anybody; as to the {other}, it had better be left to {who}.
Is the {thing} {quality} because it was {done}, or was it {done} because it is {quality}?
I asked {who} for the {thing} and was given a {other} (the {thing}, she said, was {quality}).
Every {thing} has its {other}, as they say in {town}, and every {other} has its price.
"""
_HEADINGS = """
The {quality} {thing}
On {things}
How a {thing} is {done}
What was in the {place}
A {thing} for the {place}
Before the {other}
"""
_WORDS = """
thing: kettle lantern ferry beehive cupboard violin hedge chimney ladle bucket barometer weathervane quilt trellis
  sawmill jug wheelbarrow millstone bobbin kiln hammock lathe vineyard compass goose pulley ledger cistern thimble gate
place: cellar boathouse attic dairy railway yard vestry workshop meadow quarry pantry harbour churchyard corridor
  library greenhouse village hall mill pond stable loft
who: the miller|Aunt Hedwig|a passing vet|Mr Quill|the widow Ferris|our postman|Jemima|the younger Blythe|the curate
  |Professor Umber|Ezra|a cousin of mine
done: mended borrowed weighed whitewashed oiled photographed forgotten buried polished auctioned unpicked repainted
  catalogued frozen knotted swept
did: mended borrowed weighed whitewashed oiled photographed polished auctioned repainted catalogued swept
quality: crooked hollow mildewed punctual velvety lopsided waterproof peculiar brittle gigantic lukewarm cheerful
  doubtful splendid yellowish vacant
month: January March May July August October December
town: Ludbrook Pavey Kirkholm Thistley Oxmere Wexcombe Jarrow
few: none two seven eleven twenty-six forty
hour: six eight nine eleven
"""


def _read_words() -> dict[str, list[str]]:
    lines = _WORDS.strip().replace("\n  ", " ").split("\n")
    found = dict(line.split(": ") for line in lines)
    return {
        name: [word.strip() for word in (words.split("|") if "|" in words else words.split())]
        for name, words in found.items()
    }


_CHOICES = _read_words()
_SENTENCES, _PHRASES = _FORMS.strip().split("\n"), _HEADINGS.strip().split("\n")
_SLOT = re.compile(r"\{(\w+)\}")


class Essay:
    """Writes the text of a page."""

    def text(self, rng: np.random.Generator, num_characters: int) -> str:
        """Return sentences of about that many characters in all."""
        sentences: list[str] = []
        while sum(map(len, sentences)) + len(sentences) < num_characters:
            if len(sentences) % len(_SENTENCES) == 0:
                order = rng.permutation(len(_SENTENCES))
            sentences.append(_filled(rng, _SENTENCES[order[len(sentences) % len(_SENTENCES)]]))
        return " ".join(sentences)

    def phrase(self, rng: np.random.Generator) -> str:
        """Return a heading."""
        return _filled(rng, pick(rng, _PHRASES))


def _filled(rng: np.random.Generator, form: str) -> str:
    """Return the form with a word in each slot, the same thing in all slots that name it."""
    thing, other = (str(word) for word in rng.choice(_CHOICES["thing"], 2, replace=False))
    fixed = {"thing": thing, "things": _plural(thing), "other": other}

    def fill(slot: re.Match[str]) -> str:
        name = slot[1]
        if name == "number":
            return str(rng.integers(3, 400))
        if name == "year":
            return str(rng.integers(1650, 1999))
        word = fixed.get(name) or pick(rng, _CHOICES[name.lower()])
        return word[0].upper() + word[1:] if name[0].isupper() else word

    return _SLOT.sub(fill, form)


def _plural(word: str) -> str:
    return {"goose": "geese", "compass": "compasses", "ferry": "ferries", "trellis": "trellises"}.get(word, word + "s")
