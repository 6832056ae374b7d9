r"""LaTeX as latex2mathml understands it: environments and commands that it does not know, as those that it does.

Of an array's columns it reads letters alone, and `\tag` makes an element that browsers do not show.
"""

from __future__ import annotations

import re
from typing import Final

_ALIGNED: Final = re.compile(
    r"\\(begin|end)\s*\{\s*(?:align|aligned|split|eqnarray\*?|flalign\*?|alignat\*?|alignedat)\s*\}"
)
"""`align` itself too: latex2mathml would number its lines, with numbers that do not stand on the page."""
_GATHERED: Final = re.compile(r"\\(begin|end)\s*\{\s*(?:gather\*?|gathered|multline\*?|multlined)\s*\}")
_UNMARKED: Final = re.compile(r"\\(?:begin|end)\s*\{\s*(?:equation\*?|displaymath|math)\s*\}")
_TAG: Final = re.compile(r"\\tag\s*(\*?)\s*\{([^{}]*)\}")
_LABEL: Final = re.compile(r"\\label\s*\{[^{}]*\}")
_COLUMNS: Final = re.compile(
    r"\\begin\s*\{\s*(?:array|tabular)\s*\}\s*(?:\[[tcb]\]\s*)?\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
)
_END_OF_COLUMNS: Final = re.compile(r"\\end\s*\{\s*tabular\s*\}")
_REPEATED: Final = re.compile(r"\*\s*\{\s*(\d{1,2})\s*\}\s*\{([^{}]*)\}")
_PARAGRAPH: Final = re.compile(r"[pmb]\s*\{[^{}]*\}")
_BETWEEN: Final = re.compile(r"[@!<>]\s*\{[^{}]*\}|[^lcr|]")
_MAX_COLUMNS: Final = 200
_UPRIGHT: Final = re.compile(r"\\(?:mathrm|rm)\s*\{\s*([A-Za-z])\s*\}")
_NOT: Final = re.compile(r"\\not\s*(=|\\in(?![A-Za-z]))")
_WITH_LIMITS: Final = re.compile(
    r"(\\(?:(?:arg)?max|(?:arg)?min|sup|inf|lim|limsup|liminf|det|gcd|Pr)(?=\s*_)"
    r"|\\operatorname\*\s*\{[^{}]*\}(?=\s*_)|\\mathop\s*\{(?:[^{}]|\{[^{}]*\})*\}(?=\s*_)"
    r"|\\(?:sum|prod|coprod|big(?:cap|cup|sqcup|uplus|vee|wedge|odot|oplus|otimes))(?=\s*[_^]))"
)
"""What has its limits above and below in a displayed formula: latex2mathml knows it of sums that are in no braces."""
_COMMAND: Final = re.compile(r"\\[A-Za-z]+")
_OTHER_NAMES: Final = {
    r"\AA": "Å",
    r"\arg": r"\mathrm{arg}",
    r"\copyright": "©",
    r"\dag": r"\dagger",
    r"\ddag": r"\ddagger",
    r"\degreeCelsius": "°C",
    r"\ensuremath": "",
    r"\hfill": r"\quad",
    r"\mathds": r"\mathbb",
    r"\nonumber": "",
    r"\notag": "",
    r"\P": "¶",
    r"\textbackslash": r"\backslash",
    r"\textcircled": r"\boxed",
    r"\textdegree": r"\degree",
    r"\textmu": r"\mu",
    r"\textsc": r"\mathrm",
    r"\textsubscript": "_",
    r"\textsuperscript": "^",
    r"\textunderscore": r"\_",
}


def understood(latex: str, *, display: bool) -> str:
    """The formula without what only numbers or names it; a tag is text at its end."""
    tags = ["".join(text.split()) if starred else f"({''.join(text.split())})" for starred, text in _TAG.findall(latex)]
    latex = _LABEL.sub("", _TAG.sub("", latex))
    latex = _ALIGNED.sub(r"\\\1{align*}", _UNMARKED.sub("", latex))
    latex = _GATHERED.sub(r"\\\1{matrix}", latex)
    latex = _END_OF_COLUMNS.sub(r"\\end{array}", _COLUMNS.sub(_plain_columns, latex))
    latex = _NOT.sub(lambda match: r"\neq " if match[1] == "=" else r"\notin ", _UPRIGHT.sub(r"\\text{\1}", latex))
    if display:
        latex = _WITH_LIMITS.sub(r"\1\\limits", latex)
    latex = _COMMAND.sub(lambda command: _OTHER_NAMES.get(command[0], command[0]), latex)
    return latex + "".join(rf"\qquad\text{{{tag}}}" for tag in tags)


def _plain_columns(match: re.Match[str]) -> str:
    """The begin of an array whose columns are the letters l, c and r and the lines between them."""
    columns = _REPEATED.sub(lambda repeated: repeated[2] * int(repeated[1]), match[1])
    plain = _BETWEEN.sub("", _PARAGRAPH.sub("l", columns))
    return rf"\begin{{array}}{{{plain[:_MAX_COLUMNS] or 'c'}}}"
