"""Files that a test writes, and their pages."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from batchocr.data import Page
from batchocr.pages.input.render import RenderableDocument, open_document

RED, GREEN, BLUE, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)


def opened(path: Path, *, password: str | None = None, dpi: int = 72) -> RenderableDocument:
    return open_document(str(path), password=password, dpi=dpi)


def render(path: Path, page_index: int = 0, *, password: str | None = None, dpi: int = 72) -> Page:
    with closing(opened(path, password=password, dpi=dpi)) as document:
        return document.render(page_index)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def pixels(page: Page) -> list[tuple[int, ...]]:
    assert page.image.mode == "RGB"
    return list(page.image.get_flattened_data())  # type: ignore[arg-type]
