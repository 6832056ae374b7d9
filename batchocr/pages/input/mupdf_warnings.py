"""What MuPDF says when something is wrong: its errors, and what its warnings about a page mean.

MuPDF draws what it can decode, and warns about what it cannot. The few harmless warnings are listed here, and every
other means that content was lost: a new one makes a sound page `degraded`, never a broken page `ok`. Of 434 pages in
public test sets 20 had a warning; five of these are broken, and one other is called so.
"""

from __future__ import annotations

import re

import pymupdf

from batchocr.data import valid_text

# A broken PDF becomes a row with a reason; what MuPDF prints as well would end up among the run's own lines.
pymupdf.TOOLS.mupdf_display_errors(False)
pymupdf.TOOLS.mupdf_display_warnings(False)

REFUSALS = (pymupdf.mupdf.FzErrorBase, RuntimeError, ValueError)
"""What PyMuPDF raises on bad input: MuPDF's own errors, those it turns into RuntimeError (FileDataError, EmptyFileError
and the C++ side's), and ValueError for a page that the document claims but does not have."""

_OTHER_LENGTH = "PDF stream Length incorrect"
"""Said of a stream that ends elsewhere than its dictionary says: mostly the dictionary is wrong."""

_HARMLESS = re.compile(
    "|".join(
        (
            r"\.\.\. repeated \d+ times\.\.\.",
            # Colours are those of the colour space beneath a profile.
            r"lcms: .*",
            r"format error: cmsOpenProfileFromMem failed",
            r"syntax error: ICC profile \(N=\d+\) is not .*",
            r"ignoring (broken|embedded) ICC profile.*",
            # Fonts that are not in the file are replaced, as by every viewer.
            r"freetype could not find any cmaps",
            r"unknown cid collection: .*",
            r"non-embedded font using identity encoding: .*",
            # Nothing is drawn by these, or what they ask for is drawn as meant.
            r"closepath with no current point",
            r"invalid marked content sequence / clip nesting",
            r"Repairing missing parent \(P\) in parent tree nodes",
            r"repaired broken tree structure in outline",
            # Objects that a repair does not find are missed by the pages that use them, and missing pages have rows.
            r"trying to repair broken xref",
            r"repairing PDF document",
            _OTHER_LENGTH,
            r"format error: (too many kids|non-page object) in page tree",
            r"non-page object in page tree \(\w*\)",
            r"Page tree load failed\. Falling back to slow lookup",
            r"Document claims to have \d+ pages, but only has \d+\.",
        )
    )
)

_MAX_WARNINGS = 3
_MAX_LENGTH = 200


def all_warnings() -> str:
    """What MuPDF has said since `forget_warnings`, one warning a line."""
    return str(pymupdf.TOOLS.mupdf_warnings(reset=False))


def forget_warnings() -> None:
    """Begin anew: PyMuPDF keeps the warnings about all documents."""
    pymupdf.TOOLS.reset_mupdf_warnings()


def reason_of(error: BaseException) -> str:
    """MuPDF's own words, which FileDataError hides; they can quote the file, so odd bytes are escaped."""
    words = str(error.__cause__ or error).removesuffix("\n")
    return valid_text(re.sub(r"^code=\d+: ", "", words))


def lost_content(warnings: str, *, cut_off: bool = False) -> str | None:
    """Which of these warnings, one a line, mean that content was not drawn; None if there are none.

    cut_off: whether the file ends within an object, so that a stream may be too short.
    """
    said = dict.fromkeys(warnings.splitlines())
    lines = [line for line in said if not _HARMLESS.fullmatch(line) or (cut_off and line == _OTHER_LENGTH)]
    if not lines:
        return None
    words = [valid_text(line)[:_MAX_LENGTH] for line in lines[:_MAX_WARNINGS]]
    if len(lines) > _MAX_WARNINGS:
        words.append(f"and {len(lines) - _MAX_WARNINGS} more")
    return f"MuPDF says: {', '.join(words)}"
