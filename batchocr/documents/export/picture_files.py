"""The image files of a document, beside the text that refers to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from batchocr.data import Failure
from batchocr.documents.assembly.document import Place
from batchocr.documents.export.figures import cut
from batchocr.documents.export.formats import Figures, File


def picture_files(
    places: Iterator[Place], folder: str, figures: Figures, pictures: dict[Place, str | Failure]
) -> Iterator[File]:
    """Yield `FOLDER/page-P-block-B.png` for each place.

    Sets in `pictures` the path of each from the text beside the folder, or why there is none.
    """
    numbers: Counter[str] = Counter()
    for place, picture in cut(places, figures, "png"):
        if isinstance(picture, Failure):
            pictures[place] = picture
            continue
        block = f"page-{place.page_index + 1}-block-{place.block}"
        numbers[block] += 1
        last = f"{block}-{numbers[block]}" if numbers[block] > 1 else block
        path = f"{folder}/{last}.png"
        pictures[place] = path[folder.rfind("/") + 1 :]
        yield File(path, picture.data, picture.shows)
