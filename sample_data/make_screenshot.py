"""Write the README's picture of the review page: run `python sample_data/make_screenshot.py sample.parquet`, with the
table of `make sample`. It needs Chromium.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from batchocr.config import Config
from batchocr.documents.assembly.assemble import open_table
from batchocr.documents.review.choose import choose
from batchocr.documents.review.review import write_review
from batchocr.processes.source_files import SourceFiles

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.browser import chromium, find_chromium, opened  # noqa: E402 (from a checkout, which is in the path only now)

PICTURE = ROOT / "docs" / "review.png"
SIZE = {"width": 1360, "height": 850}
MAX_BYTES = 300_000
SHOWN, SELECTED = "article.pdf", 7


def draw(page: Page) -> Image.Image:
    """The page with a formula that is pointed at, and some marks."""
    page.locator("#list button", has_text=SHOWN).filter(has_text="page 1").click()
    page.evaluate("document.querySelector('#sheet img').decode()")
    page.keyboard.press("g")
    page.locator(".card").nth(SELECTED).locator(".head").click()
    page.mouse.move(0, 0)
    page.wait_for_timeout(600)  # the pane scrolls
    page.locator("#blocks").evaluate("(blocks) => blocks.scrollBy(0, 280)")
    return Image.open(io.BytesIO(page.screenshot()))


def main(table_name: str) -> None:
    if find_chromium() is None:
        sys.exit("no Chromium: install the package chromium")
    table = open_table(table_name)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        review = Path(folder) / "review.html"
        config = Config(password="batchocr", dpi=int(table.facts.settings["dpi"]))
        with SourceFiles([str(ROOT / "sample_data" / "documents")], config) as files:
            write_review(review, choose(table.rows(), "worst", 100), table, files)
        with opened(browser, review, viewport=SIZE, device_scale_factor=1.5) as watched:
            image = draw(watched.page)
    image.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    size = PICTURE.stat().st_size
    print(f"{PICTURE}: {image.width} × {image.height} px, {size / 1000:.0f} KB")
    if size > MAX_BYTES:
        sys.exit(f"larger than {MAX_BYTES // 1000} KB")


if __name__ == "__main__":
    main(*sys.argv[1:])
