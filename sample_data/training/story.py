"""Ten pages of ordinary prose and lists, set by PyMuPDF's Story, which knows nothing of the training pages."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pymupdf

_PAGE = pymupdf.paper_rect("a4")
_TEXT_AREA = pymupdf.Rect(64, 70, _PAGE.x1 - 64, _PAGE.y1 - 70)
_FONTS = ("Times", "Helvetica", "Courier")
_PROSE = (
    "The ferry left at six, as it had every morning since the bridge was washed away. There were eleven "
    "passengers, two bicycles and a crate of hens that nobody claimed. Halfway across the fog came down, and the "
    "captain stopped the engine to listen for the bell on the far shore.",
    "Our library owns 4,318 books, of which 97 are at present on loan and 12 have not been seen since the flood "
    "of 1987. Members may borrow three at a time. A fine of 5 pence a day is charged for late returns; it has "
    "never been paid.",
    "Before the frost, lift the dahlias and shake the earth from their roots. Keep them in dry sand, in a box, "
    "under the stairs. They do not like to be cold, wet or forgotten (in that order), and they will tell you so "
    "in May.",
    "“You cannot miss the house,” she wrote, “for it is the only one with a green door; the others are blue.” "
    "When we arrived, all the doors had been painted white. We knocked at each of them, and were given tea five "
    "times.",
    "The clock in the tower strikes thirteen at noon. A committee was formed to look into the matter, and met 26 "
    "times. Its report found that the clock was right in every other respect, and recommended that noon be "
    "avoided.",
    "Bread wants time more than it wants flour. Mix 500 g of flour with 350 g of water, 10 g of salt and a spoon "
    "of old dough; leave it alone until evening; fold it twice, and bake it at 230 degrees until it sounds "
    "hollow.",
)
_ITEMS = (
    "a lamp, with oil for two nights;",
    "string, and a knife that will cut it;",
    "the map of 1962, not the new one;",
    "two blankets and a kettle;",
    "a letter for the keeper of the lighthouse.",
)


def set_story_pages(path: Path) -> list[str]:
    """Write the pages as a PDF. Returns the text of each, blocks joined by spaces."""
    writer = pymupdf.DocumentWriter(str(path))
    truths = []
    for number in range(10):
        chosen = [_PROSE[(number + step) % len(_PROSE)] for step in range(4)]
        title = f"{number + 1}. What was kept in the drawer"
        html = f"<h2>{escape(title)}</h2>" + "".join(f"<p>{escape(words)}</p>" for words in chosen)
        html += "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in _ITEMS) + "</ul>"
        size = 9.5 + 0.4 * (number % 7)
        css = (
            f"body {{font-family: {_FONTS[number % 3]}; font-size: {size}pt; line-height: {1.2 + 0.05 * (number % 4)}}}"
        )
        story = pymupdf.Story(html, user_css=css)
        device = writer.begin_page(_PAGE)
        story.place(_TEXT_AREA)
        story.draw(device)
        writer.end_page()
        truths.append(" ".join([title, *chosen, *_ITEMS]))
    writer.close()
    return truths
