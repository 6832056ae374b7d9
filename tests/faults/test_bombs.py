"""Small documents that would take gigabytes or ages: each costs bounded time and memory, and has its row."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from batchocr import PageResult
from batchocr.errors import DamagedError
from batchocr.pages.input.render import open_document
from tests.support.hostile import FORM, pdf, stream
from tests.support.jobs import FULL
from tests.support.running import draw_pdf, read_rows, run_command

pytestmark = pytest.mark.slow

PAGE_TIMEOUT_S = 1.5
WORKER_MEMORY = 1 << 30


def one_page(
    content: bytes, *others: bytes, resources: bytes = b"", page: bytes = b"", box: bytes = b"0 0 600 800"
) -> bytes:
    """A PDF of one page. others: further objects, numbered from 5."""
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[%s]/Contents 4 0 R/Resources<<%s>>%s>>" % (box, resources, page),
        stream(content),
        *others,
    )


def forms_in_forms(depth: int, content: bytes, entries: bytes = b"", resources: bytes = b"") -> list[bytes]:
    """Objects numbered from 5: a form that draws the next one, and so on down."""
    return [
        stream(content, FORM + b"%s/Resources<<%s/XObject<</F %d 0 R>>>>" % (entries, resources, number + 1))
        for number in range(5, 5 + depth)
    ] + [stream(b"0 0 9 9 re f", FORM)]


def many_images(count: int) -> bytes:
    image = b"/Type/XObject/Subtype/Image/Width 100/Height 100/ColorSpace/DeviceRGB/BitsPerComponent 8"
    images = [stream(bytes([i % 256]) * 30_000, image) for i in range(count)]
    names = b"".join(b"/I%d %d 0 R" % (i, 5 + i) for i in range(count))
    drawn = b"\n".join(b"q 10 0 0 10 %d %d cm /I%d Do Q" % (i % 60 * 10, i // 60 * 9, i) for i in range(count))
    return one_page(drawn, *images, resources=b"/XObject<<%s>>" % names)


def large_image(edge: int) -> bytes:
    entries = b"/Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceGray/BitsPerComponent 1" % (edge, edge)
    image = stream(bytes(edge * edge // 8), entries)
    return one_page(b"600 0 0 800 0 0 cm /I Do", image, resources=b"/XObject<</I 5 0 R>>")


def claimed_pages(count: int) -> bytes:
    """A PDF of one page that claims many. MuPDF believes up to the number of objects; free ones compress to nothing."""
    objects = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count %d>>" % count,
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]>>",
    )
    written, rows = b"%PDF-1.7\n", [struct.pack(">BIB", 0, 0, 0)]
    for number, body in enumerate(objects, 1):
        rows.append(struct.pack(">BIB", 1, len(written), 0))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    rows.append(struct.pack(">BIB", 1, len(written), 0))
    rows.append(bytes(6 * count))
    table = stream(b"".join(rows), b"/Type/XRef/Size %d/W[1 4 1]/Root 1 0 R" % (len(rows) - 1 + count))
    return written + b"4 0 obj\n%s\nendobj\nstartxref\n%d\n%%%%EOF" % (table, len(written))


def deep_page_tree(depth: int) -> bytes:
    nodes = [
        b"<</Type/Pages/Kids[%d 0 R]/Count 1/Parent %d 0 R>>" % (number + 1, max(2, number - 1))
        for number in range(2, depth)
    ]
    page = b"<</Type/Page/Parent %d 0 R/MediaBox[0 0 300 300]>>" % (depth - 1)
    return pdf(b"<</Type/Catalog/Pages 2 0 R>>", *nodes, page)


def many_annotations(count: int) -> bytes:
    annotations = [
        b"<</Type/Annot/Subtype/Square/Rect[%d 9 %d 99]/C[1 0 0]>>" % (i % 500, i % 500 + 9) for i in range(count)
    ]
    numbers = b" ".join(b"%d 0 R" % (5 + i) for i in range(count))
    return one_page(b"", *annotations, page=b"/Annots[%s]" % numbers)


def deep_form_field(depth: int) -> bytes:
    fields = [
        b"<</Type/Annot/Subtype/Widget/FT/Tx/Rect[0 0 9 9]/Parent %d 0 R>>" % (number + 1)
        for number in range(5, 5 + depth)
    ]
    return one_page(b"", *fields, b"<</FT/Tx>>", page=b"/Annots[5 0 R]")


GROUP = b"/Group<</S/Transparency/I true>>"
BLEND = b"/ExtGState<</G<</ca 0.5/BM/Multiply>>>>"
TILE = b"/Type/Pattern/PatternType 1/PaintType 1/TilingType 1/BBox[0 0 1 1]/XStep 0.0001/YStep 0.0001/Resources<<>>"


def bombs() -> dict[str, bytes]:
    """The documents, by name."""
    first_form = b"/XObject<</F 5 0 R>>"
    groups = forms_in_forms(200, b"/G gs 0 0 3000 3000 re f /F Do", GROUP, BLEND)
    tile = stream(b"0 0 1 1 re f", TILE)
    return {
        "annotations": many_annotations(5_000),
        "arrays in arrays": one_page(b"[" * 2_000_000),
        "deep field": deep_form_field(20_000),
        "deep tree": deep_page_tree(10_000),
        "forms in forms": one_page(b"/F Do", *forms_in_forms(5_000, b"/F Do"), resources=first_form),
        "forms without end": one_page(b"/F Do", *forms_in_forms(30, b"/F Do " * 10), resources=first_form),
        "giant": one_page(b"0 0 m 10 10 l S", box=b"0 0 1e30 1e30"),
        "graphics states": one_page(b"q\n" * 1_000_000),
        "groups": one_page(b"/F Do", *groups, resources=first_form, box=b"0 0 3000 3000"),
        "images": many_images(1_000),
        "large image": large_image(10_000),
        "tall": one_page(b"0 0 m 10 10 l S", box=b"0 0 1 1000000000"),
        "tiles": one_page(b"/Pattern cs /P scn 0 0 600 800 re f", tile, resources=b"/Pattern<</P 5 0 R>>"),
    }


MAY_BECOME = {
    "annotations": {"read", "timeout"},
    "arrays in arrays": {"damaged"},
    "deep field": {"read", "timeout"},
    "deep tree": {"damaged", "timeout"},
    "forms in forms": {"read", "damaged"},
    "forms without end": {"timeout"},
    "giant": {"read"},
    "graphics states": {"damaged"},
    "groups": {"out_of_memory", "timeout"},
    "images": {"read"},
    "large image": {"read", "timeout"},
    "tall": {"damaged"},
    "tiles": {"timeout"},
}


LONG = {"deep field", "forms in forms", "graphics states", "groups", "images", "large image", "tiles"}
"""Read by `make test-all` alone: others end in the same way."""
NAMES = [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in sorted(MAY_BECOME)]


@dataclass(frozen=True)
class Ended:
    rows: Sequence[PageResult]
    seconds: float
    report: dict[str, dict[str, object]]


@pytest.fixture(scope="module")
def ended(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("bombs")
    (folder / "in").mkdir()
    draw_pdf(folder / "in" / "sound.pdf", "read me")
    for name, content in bombs().items():
        if name in LONG and not FULL:
            continue
        (folder / "in" / f"{name}.pdf").write_bytes(content)
    reading = ("--model", model, "--dpi", "72", "--max-new-tokens", "64")
    limits = ("--workers", "1", "--worker-memory", f"{WORKER_MEMORY >> 30}G", "--page-timeout", str(PAGE_TIMEOUT_S))
    out = folder / "table.jsonl"
    started_s = time.monotonic()
    run_command(folder / "in", "--out", out, *reading, *limits)
    seconds = time.monotonic() - started_s
    return Ended(read_rows(out), seconds, json.loads(Path(f"{out}.report.json").read_text()))


@pytest.mark.parametrize("name", NAMES)
def test_each_ends_as_one_row_that_says_what_became_of_it(ended: Ended, name: str) -> None:
    [row] = [row for row in ended.rows if row.source == f"{name}.pdf"]
    became = "read" if row.status in ("ok", "degraded") else row.error_kind
    assert became in MAY_BECOME[name], row.error_message


def test_the_sound_document_beside_them_is_read(ended: Ended) -> None:
    [row] = [row for row in ended.rows if row.source == "sound.pdf"]
    assert row.blocks


def test_they_cost_bounded_time(ended: Ended) -> None:
    num_timeouts = sum(row.error_kind == "timeout" for row in ended.rows)
    assert ended.seconds < 60 + 2 * (PAGE_TIMEOUT_S + 5) * num_timeouts


def test_no_worker_holds_more_memory_than_it_may(ended: Ended) -> None:
    peak = ended.report["host_memory"]["peak_worker_bytes"]
    assert isinstance(peak, int)
    assert peak <= WORKER_MEMORY


def test_of_pages_that_are_only_claimed_a_hundred_have_rows(tmp_path: Path) -> None:
    # One row more says how many are left out.
    for claimed, count in ((300_000, 102), (101, 101), (100, 100)):
        path = tmp_path / f"{claimed}.pdf"
        path.write_bytes(claimed_pages(claimed))
        with closing(open_document(str(path), password=None, dpi=72)) as document:
            assert document.page_count == count
            assert document.render(0).image.size == (300, 300)
            for page_index in (1, min(count, 101) - 1):
                with pytest.raises(DamagedError, match="not in document"):
                    document.render(page_index)


def test_a_large_image_is_in_memory_once_while_it_is_reduced(tmp_path: Path) -> None:
    edge = 6_000
    Image.new("RGB", (edge, edge), "white").save(tmp_path / "large.png")
    script = (
        "import sys\n"
        "from batchocr.pages.input.render import open_document\n"
        "from batchocr.machine import peak_resident_bytes\n"
        "document = open_document(sys.argv[1], password=None, dpi=200)\n"
        "before = peak_resident_bytes()\n"
        "document.render(0)\n"
        "sys.stdout.write(str(peak_resident_bytes() - before))\n"
    )
    arguments = [sys.executable, "-c", script, str(tmp_path / "large.png")]
    child = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    # Pillow takes four bytes per pixel; what it makes of the image on the way adds up to one more image.
    assert int(child.stdout) < 2.5 * 4 * edge * edge
