"""Display formulas: a small grammar of LaTeX, set as boxes inside boxes. Lengths are in points.

A LaTeX token has the place of the ink that shows it: a letter has its own, `\\frac{` that of its bar.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sample_data.training.truth import Mark
from sample_data.training.typesetting import MIDDLE, Sheet, Style, text_width

Draw: TypeAlias = Callable[[Sheet, float, float], list[Mark]]
"""(sheet, x, baseline) → the marks of what was set."""

GREEK = {
    "α": "\\alpha ",
    "β": "\\beta ",
    "γ": "\\gamma ",
    "δ": "\\delta ",
    "θ": "\\theta ",
    "λ": "\\lambda ",
    "μ": "\\mu ",
    "π": "\\pi ",
    "σ": "\\sigma ",
    "φ": "\\varphi ",
    "ω": "\\omega ",
    "Σ": "\\Sigma ",
    "Δ": "\\Delta ",
    "Ω": "\\Omega ",
}
SIGNS = {
    "−": "-",
    "·": "\\cdot ",
    "×": "\\times ",
    "±": "\\pm ",
    "≤": "\\leq ",
    "≥": "\\geq ",
    "≠": "\\neq ",
    "→": "\\to ",
}
LARGE = {"∑": "\\sum ", "∫": "\\int "}
FUNCTIONS = ("sin", "cos", "tan", "log", "exp", "lim", "max", "min")
COMMANDS = (
    *(*GREEK.values(), *list(SIGNS.values())[1:], *LARGE.values()),
    *(f"\\{name} " for name in FUNCTIONS),
    *("^{", "_{", "\\frac{", "\\sqrt{", "^{\\circ}", "\\tag{", "\\infty "),
)
_LETTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHKLMNPQRSTVXYZ"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a formula: its width, its extent above and below the baseline, and how to set it."""

    width: float
    above: float
    below: float
    draw: Draw


def draw_formula(rng: np.random.Generator, size: float) -> Part:
    """Return a formula of one to three sides. size: of its font."""
    parts = [_expression(rng, size, 0)]
    for _ in range(rng.choice((0, 1, 2), p=(0.15, 0.75, 0.1))):
        sign = rng.choice(5, p=(0.76, 0.06, 0.06, 0.06, 0.06))
        parts.append(_sign(("=", "≤", "≥", "≠", "→")[sign], size))
        parts.append(_expression(rng, size, 0))
    return _row(parts)


def _glyph(character: str, token: str, style: Style) -> Part:
    width = text_width(character, style)

    def draw(sheet: Sheet, x: float, baseline: float) -> list[Mark]:
        sheet.text(x, baseline, character, style)
        return [Mark(token, x, x + width, baseline - MIDDLE * style.size, style.size, 0)]

    return Part(width, 0.75 * style.size, 0.23 * style.size, draw)


def _letter(character: str, size: float) -> Part:
    return _glyph(character, GREEK.get(character, character), Style("times", "italic", size))


def _number(digits: str, size: float) -> Part:
    return _row([_glyph(digit, digit, Style("times", "regular", size)) for digit in digits])


def _sign(character: str, size: float) -> Part:
    part = _glyph(character, SIGNS.get(character, character), Style("times", "regular", size))
    return _row([_space(0.28 * size), part, _space(0.28 * size)])


def _space(width: float) -> Part:
    return Part(width, 0.0, 0.0, lambda sheet, x, baseline: [])


def _row(parts: list[Part]) -> Part:
    def draw(sheet: Sheet, x: float, baseline: float) -> list[Mark]:
        marks: list[Mark] = []
        for part in parts:
            marks += part.draw(sheet, x, baseline)
            x += part.width
        return marks

    return Part(
        sum(part.width for part in parts), max(part.above for part in parts), max(part.below for part in parts), draw
    )


def _fraction(over: Part, under: Part, size: float) -> Part:
    width = max(over.width, under.width) + 0.4 * size
    axis, gap = 0.27 * size, 0.18 * size

    def draw(sheet: Sheet, x: float, baseline: float) -> list[Mark]:
        bar = baseline - axis
        sheet.rule(x + 1, bar, x + width - 1, bar, 0.05 * size)
        top = over.draw(sheet, x + (width - over.width) / 2, bar - gap - over.below)
        bottom = under.draw(sheet, x + (width - under.width) / 2, bar + gap + under.above)
        start, end = (Mark(token, x, x + width, bar, size, 0) for token in ("\\frac{", "}"))
        return [start, *top, end, end._replace(token="{"), *bottom, end]

    return Part(width, axis + gap + over.below + over.above, gap - axis + under.above + under.below, draw)


def _script(base: Part, script: Part, sign: str, size: float) -> Part:
    """A base with a superscript (`^`) or a subscript (`_`)."""
    rise = 0.42 * size if sign == "^" else -0.2 * size

    def draw(sheet: Sheet, x: float, baseline: float) -> list[Mark]:
        marks = base.draw(sheet, x, baseline)
        raised = script.draw(sheet, x + base.width + 0.04 * size, baseline - rise)
        return [*marks, raised[0]._replace(token=sign + "{"), *raised, raised[-1]._replace(token="}")]

    above, below = max(base.above, script.above + rise), max(base.below, script.below - rise)
    return Part(base.width + script.width + 0.08 * size, above, below, draw)


def _root(inside: Part, size: float) -> Part:
    hook, above = 0.6 * size, inside.above + 0.16 * size

    def draw(sheet: Sheet, x: float, baseline: float) -> list[Mark]:
        low, high, thick = baseline + inside.below, baseline - above, 0.05 * size
        sheet.rule(x, baseline - 0.3 * size, x + 0.25 * size, low, 2 * thick)
        sheet.rule(x + 0.25 * size, low, x + hook, high, thick)
        sheet.rule(x + hook, high, x + hook + inside.width + 0.1 * size, high, thick)
        start = Mark("\\sqrt{", x, x + hook, baseline - 0.25 * size, size, 0)
        marks = inside.draw(sheet, x + hook, baseline)
        return [start, *marks, marks[-1]._replace(token="}")]

    return Part(hook + inside.width + 0.15 * size, above + 0.1 * size, inside.below + 0.1 * size, draw)


def _brackets(inside: Part, size: float) -> Part:
    tall = max(size, inside.above + inside.below)
    drop = (inside.below - inside.above) / 2 + 0.33 * tall  # centres the brackets on their content
    left, right = (_glyph(sign, sign, Style("times", "regular", tall)) for sign in "()")

    def draw(sheet: Sheet, x: float, baseline: float) -> list[Mark]:
        marks = left.draw(sheet, x, baseline + drop)
        marks += inside.draw(sheet, x + left.width, baseline)
        return marks + right.draw(sheet, x + left.width + inside.width, baseline + drop)

    return Part(
        left.width + inside.width + right.width,
        max(inside.above, left.above - drop),
        max(inside.below, left.below + drop),
        draw,
    )


def _large(rng: np.random.Generator, size: float) -> Part:
    """A sum with limits below and above, or an integral without limits."""
    if rng.uniform() < 0.4:
        return _glyph("∫", LARGE["∫"], Style("times", "regular", 1.5 * size))
    sign = _glyph("∑", LARGE["∑"], Style("times", "regular", 1.5 * size))
    low = _row([_letter("ijkn"[rng.integers(4)], 0.65 * size), _number(f"={rng.integers(3)}", 0.65 * size)])
    high = _letter("nmNM"[rng.integers(4)], 0.65 * size)
    width, lift, sink = max(sign.width, low.width), 1.25 * size, 1.0 * size

    def draw(sheet: Sheet, x: float, baseline: float) -> list[Mark]:
        marks = sign.draw(sheet, x + (width - sign.width) / 2, baseline + 0.15 * size)
        for token, part, y in (("_{", low, baseline + sink), ("^{", high, baseline - lift)):
            limit = part.draw(sheet, x + (width - part.width) / 2, y)
            marks += [limit[0]._replace(token=token), *limit, limit[-1]._replace(token="}")]
        return marks

    return Part(width + 0.15 * size, lift + high.above, sink + low.below, draw)


def _atom(rng: np.random.Generator, size: float) -> Part:
    kind = rng.uniform()
    if kind < 0.2:
        return _number(str(rng.integers(1, 1000) if kind < 0.06 else rng.integers(1, 10)), size)
    if kind < 0.4:
        return _letter(list(GREEK)[rng.integers(len(GREEK))], size)
    return _letter(_LETTERS[rng.integers(len(_LETTERS))], size)


def _term(rng: np.random.Generator, size: float, depth: int) -> Part:
    kind = rng.uniform()
    if depth < 2 and kind < 0.16:
        return _fraction(_expression(rng, size, depth + 1), _expression(rng, size, depth + 1), size)
    if depth < 2 and kind < 0.22:
        return _root(_expression(rng, size, depth + 1), size)
    if depth < 2 and kind < 0.3:
        return _row([_letter("fghFG"[rng.integers(5)], size), _brackets(_expression(rng, size, depth + 1), size)])
    if kind < 0.5:
        return _script(
            _letter(_LETTERS[rng.integers(len(_LETTERS))], size), _atom(rng, 0.68 * size), "^_"[rng.integers(2)], size
        )
    if kind < 0.57:
        name = FUNCTIONS[rng.integers(len(FUNCTIONS))]
        letters = _row([_glyph(letter, "", Style("times", "regular", size)) for letter in name])
        return _row([_named(letters, name, size), _space(0.15 * size), _atom(rng, size)])
    if depth == 0 and kind < 0.63:
        return _row([_large(rng, size), _term(rng, size, 1)])
    if kind < 0.66:
        return _row(
            [_number(str(rng.integers(1, 361)), size), _glyph("°", "^{\\circ}", Style("times", "regular", size))]
        )
    return _atom(rng, size)


def _named(letters: Part, name: str, size: float) -> Part:
    """The name of a function: several letters on the page, one LaTeX token."""

    def draw(sheet: Sheet, x: float, baseline: float) -> list[Mark]:
        first, *_, last = letters.draw(sheet, x, baseline)
        return [first._replace(token=f"\\{name} ", x1=last.x1)]

    return Part(letters.width, letters.above, letters.below, draw)


def _expression(rng: np.random.Generator, size: float, depth: int) -> Part:
    parts = [_term(rng, size, depth)]
    for _ in range(rng.choice((0, 1, 2), p=(0.5, 0.35, 0.15) if depth == 0 else (0.75, 0.2, 0.05))):
        sign = ("+", "−", "·", "×", "±", "")[rng.choice(6, p=(0.3, 0.3, 0.1, 0.05, 0.05, 0.2))]
        if sign:
            parts.append(_sign(sign, size))
        parts.append(_term(rng, size, depth))
    return _row(parts)
