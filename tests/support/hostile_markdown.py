"""Blocks as a model might write them for a stranger who wants something active in a page's Markdown."""

from __future__ import annotations

import random
import re

from batchocr.data import Block

TYPES = ("text", "text", "title", "table", "equation", "code", "list", "image_caption", "ref_text", "image", "unknown")

LISTS = [
    '{onclick="evil()"}',
    '{: onclick="evil()" }',
    "{.a onclick=evil()}",
    "{#b style='background:url(https://evil)'}",
    '{hidden onclick="evil()"}',
    '{a="}" onclick="evil()"}',
    '{\nonclick="evil()"\n}',
    "{=html}",
    '{:onclick="evil()"}',
    "{::nomarkdown}",
]
"""Attribute lists of several dialects."""

PIECES = [
    *LISTS,
    *LISTS,
    *("{", "}", "{a ", "onclick=evil()", 'onclick="evil()"}', "=", '"', "'", " {x ", "\\{", "\\\\{", "\\}", "{{"),
    *("}}", "# A ", "## ", "A\n===", "A\n---", "\n", "\n\n", "\n\n", " ", "  \n", "\t", "    ", "- ", "1. ", "> "),
    *("---\n", "...\n", "::: {", "\n:::\n", ":::: b", "\n::: ", ": ", "\n: cap ", "Table: cap ", "term\n: "),
    *("!!! note\n    ", "| ", " |", "|---|---|", "\n| a | b |\n|---|---|\n| c ", " | d |\n", "*", "*a*", "**b**"),
    *("_c_", "_", "`", "`<b>`", "`d`", "~~e~~", "[x]", "[x]", "[", "]", "(https://evil)", "![", "!"),
    *("[f](https://evil)", "[g]: https://evil", "[^1]", "[^1]: h", "*[i]: evil", "<b>", "<script>evil()</script>"),
    *("<img src=x onerror=evil()>", "<https://evil>", "<!--", "-->", "<div markdown=1 ", "\\( x \\)", "\\(", "\\)"),
    *("\\[", "\\]", "$", "$$", "\\( a*b*", "*c* \\)", "5", "a", "A b", "css: https://evil", "```\n", "```{=html}\n"),
    *("~~~ {", "```math\n", "&#123;", "&lbrace;", "&lcub;", "&equals;", "&#58;::", "&lt;script>", "<table>"),
    *("<sup>1</sup>", "<sub>\\hr</sub>", "<sup>*a</sup>", "<sup>", "</sup>", "<sup>{", "<sup onclick=evil()>1</sup>"),
    *("</table>", "<tr>", "<td>", "</td>", "<td onclick=evil()>", "<br>", "<sub>", "<img src='#bbox=0,0,1,1'/>"),
]

COMMANDS = [
    *("\\href{https://evil}{x}", "\\url{https://evil}", "\\unicode[evil]{65}", "\\unicode{65}"),
    *("\\color{url(https://evil)}", "\\textcolor{url(https://evil)}{x}", "\\colorbox{url(https://evil)}{x}"),
    *("\\fcolorbox{url(https://evil)}{a}{x}", "\\unicode[a;background:url(https://evil)]{65}"),
    *("\\cancel[mathcolor=url(https://evil)]{x}", "\\style{evil}{x}"),
    *("\\enclose{circle}[mathbackground=url(https://evil)]{x}", "\\bbox[background:url(https://evil)]{x}"),
    *("\\class{evil}{x}", "\\mmlToken{mi}[href=https://evil]{x}", "\\cssId{evil}{x}", "\\data{evil=evil}{x}"),
    *("\\require{html}", "\\htmlStyle{background:url(https://evil)}{x}", "\\csname href\\endcsname{https://evil}{x}"),
    *("\\includegraphics{https://evil}", "\\xcancel [mathcolor=url(https://evil)]{x}"),
    *("\\cancelto[mathcolor=url(https://evil)]{x}{y}", "\\definecolor{e}{named}{url(https://evil)}"),
    *("\\cellcolor{url(https://evil)}", "\\rowcolor{url(https://evil)}", "\\let\\a\\href\\a{https://evil}{x}"),
    *("\\def\\a{\\cancel}\\a[mathcolor=url(https://evil)]{x}", "\\tag{x}", "\\label{evil}"),
    *("\\newcommand\\a[1]{\\hr#1}\\a{ef{https://evil}{x}}", "\\mathtip{x}{evil}", "\\texttip{x}{evil}"),
    *("\\ref{evil}", "\\begin{array}{c}\\rowcolor{url(https://evil)}a\\end{array}"),
    *("\\text{\\href{https://evil}{x}}", "\\boldsymbol{x}", "\\color[RGB]{url(https://evil)}"),
    *("\\ce{\\color{url(https://evil)}x}", "\\rule{1em}{1em}", "\\toggle{a}{b}\\endtoggle"),
]
"""LaTeX commands that link, load, style or define, and some that stand beside them."""

_LATEX = [
    *("{", "}", "[", "]", "\\", "x", "^2", "_", "\\frac{a}{b}", "\\sqrt[3]{x}", "\\sum_{i=1}", " ", "\n", "&#92;"),
    *("%", "#1"),
]


def any_text(dice: random.Random) -> str:
    return "".join(dice.choices(PIECES, k=dice.randrange(1, 12)))


def any_formula(dice: random.Random) -> str:
    """LaTeX with a command that is refused, often disguised."""
    pieces = dice.choices(_LATEX + COMMANDS + LISTS[:4], k=dice.randrange(1, 6))
    return "".join([*pieces, dice.choice(COMMANDS)])


def any_table(dice: random.Random) -> str:
    cells = [any_text(dice) if dice.random() < 0.7 else f"${any_formula(dice)}$" for _ in range(dice.randrange(1, 4))]
    rows = "</td><td>".join(cells)
    return f"<table><tr><td>{rows}" + dice.choice(["", "</td></tr></table>", "</td></tr></table>" + any_text(dice)])


def any_block(dice: random.Random) -> Block:
    type = dice.choice(TYPES)
    if type == "table":
        content = any_table(dice) if dice.random() < 0.9 else any_text(dice)
    elif type == "equation":
        content = f"\\[\n{any_formula(dice) if dice.random() < 0.7 else any_text(dice)}\n\\]"
    elif type == "code":
        content = f"```{dice.choice(['', 'html', 'mermaid', '{=html}'])}\n{any_text(dice)}{dice.choice(['', '```'])}"
    else:
        content = any_text(dice) if dice.random() < 0.7 else f"a \\( {any_formula(dice)} \\) {any_text(dice)}"
    described = any_text(dice) if type == "image" and dice.random() < 0.5 else None
    return Block(type, (0, 0, 1, 1), 0, content, dice.random() < 0.3, description=described)


def any_blocks(dice: random.Random) -> list[Block]:
    return [any_block(dice) for _ in range(dice.choice([1, 1, 2, 3]))]


_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)


def formulas_in(markdown: str) -> list[str]:
    """Whatever a formula renderer that looks for all the usual signs would take for a formula."""
    return [next(filter(None, found)) for found in _FORMULA.findall(markdown)]
