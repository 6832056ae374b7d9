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
"""MuPDF's warning of a stream that ends elsewhere than its dictionary says: mostly the dictionary is wrong."""

_HARMLESS = re.compile(
    "|".join(
        (
            r"(\.\.\. repeated \d+ times\.\.\.)?",
            # Colours are those of the colour space beneath a profile.
            r"lcms: .*|format error: cmsOpenProfileFromMem failed|syntax error: ICC profile \(N=\d+\) is not .*",
            r"(ICC colorspace N=\d+|embedded ICC profile) does not match .*",
            r"(invalid|inconsistent|skipping out of range) (number of .*)?(?i:ICC profile).*",
            r"(cannot create ICC link, )?falling back to fast color conversion",
            r"Ignoring (incompatible output intent|invalid \w+ blending colorspace): .*",
            # Links, outlines, tags and the meaning of glyphs are not drawn.
            r"invalid (link destination|page object)|cannot parse file specification",
            r"format error: cannot find page \d+ in page tree|non-indirect internal node found in name tree",
            r"repaired broken tree structure in outline|(Bad parent link|Loop found) in structure tree\. .*",
            r"Type should be StructElem|Missing structure type \(S\)|(Bad|Repairing missing) parent \(P\).*",
            r"bfrange limits out of range|expected string.* or endbf(range|char)",
            # Fonts that are not in the file are replaced, as by every viewer.
            r"freetype could not find any cmaps|CMap is missing codespace range|aes padding out of range",
            r"unknown cid collection: .*|non-embedded font using identity encoding: .*",
            r"workaround for S22PDF lying about chinese font encodings|bogus font \(.*\) ascent/descent values .*",
            # Nothing is drawn by these, or what they ask for is drawn as meant.
            r"closepath with no current point|ignoring XObject with subtype PS|ignoring unsupported .* in gif image",
            r"invalid marked content sequence / clip nesting|gstate underflow in content stream",
            r"crypt filter in unencrypted document",
            r"syntax error: cannot find ExtGState resource '.*'|convert (gray|rgb) to alpha for image mask",
            r"line feed missing after stream begin marker .*",
            r"jbig2dec warning: (JBIG2 file header ignored|failed to read end of possible terminating marker) .*",
            r"openjpeg warning: (Found a misplaced 'cmap' box|Non conformant codestream TPsot).*|JPX numcomps .*",
            # The errors themselves are said before.
            r"encountered syntax errors; page may not be correct",
            # Objects that a repair does not find are missed by the pages that use them, and missing pages have rows.
            r"trying to repair broken xref|repairing PDF document|Page tree load failed\. Falling back .*",
            _OTHER_LENGTH,
            r"format error: (too many kids|non-page object) in page tree|non-page object in page tree \(\w*\)",
            r"Document claims to have \d+ pages, but only has \d+\.",
        )
    )
)

_IGNORED = re.compile(
    r"^((library error: zlib error: .*\nread error; treating as end of file|premature end of data in flate filter)\n"
    r"(\.\.\. repeated .*\n)?(?=lcms: ))?(lcms: .*\n)*(\w+ error: .*\n)?(ignoring (broken|embedded) ICC .*|"
    r"Attempt to read Output Intent failed|Ignoring (Page blending|XObject blending|broken Optional Content) .*|"
    r"cannot load ToUnicode CMap|structure tree broken, .*)$|^(FT_\w+\([\w+]*HiddenHorzOCR,.*\n)+cannot render glyph$|"
    r"^unsupported error: cannot create appearance stream for .* annotations\ncannot create appearance stream$",
    re.MULTILINE,
)
"""What MuPDF does without, as nothing is drawn by it, or by no viewer; with the error that it found in it."""

_MAX_WARNINGS = 3
_MAX_LENGTH = 200


def all_warnings() -> str:
    """What MuPDF has said since `forget_warnings`, one warning a line."""
    return str(pymupdf.TOOLS.mupdf_warnings(reset=False))


def forget_warnings() -> None:
    """Begin anew: PyMuPDF keeps the warnings about all documents."""
    pymupdf.TOOLS.reset_mupdf_warnings()


def reason_of(error: BaseException) -> str:
    """MuPDF's own words for an error, which FileDataError hides; they can quote the file, so odd bytes are escaped."""
    words = str(error.__cause__ or error).removesuffix("\n")
    return valid_text(re.sub(r"^code=\d+: ", "", words))


def lost_content(warnings: str, *, cut_off: bool = False) -> str | None:
    """Which of these warnings, one a line, mean that content was not drawn; None if there are none.

    cut_off: whether the file ends within an object, so that a stream may be too short.
    """
    said = dict.fromkeys(_IGNORED.sub("", warnings).splitlines())
    lines = [line for line in said if not _HARMLESS.fullmatch(line) or (cut_off and line == _OTHER_LENGTH)]
    if not lines:
        return None
    words = [valid_text(line)[:_MAX_LENGTH] for line in lines[:_MAX_WARNINGS]]
    if len(lines) > _MAX_WARNINGS:
        words.append(f"and {len(lines) - _MAX_WARNINGS} more")
    return f"MuPDF says: {', '.join(words)}"
