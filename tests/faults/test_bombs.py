"""Small documents that would take gigabytes or ages: each costs bounded time and memory, and has its row."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from batchocr.errors import DamagedError
from batchocr.pages.input.render import open_document
from tests.support.hostile import FORM, hanging_pdf
from tests.support.pdf_files import deflated, pdf
from tests.support.running import draw_pdf, read_rows, run_command

pytestmark = pytest.mark.slow

PAGE_TIMEOUT_S = 1.5
WORKER_MEMORY = 1 << 30


def one_page(content: bytes, *others: bytes, resources: bytes = b"", box: bytes = b"0 0 600 800") -> bytes:
    """A PDF of one page. others: further objects, numbered from 5."""
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[%s]/Contents 4 0 R/Resources<<%s>>>>" % (box, resources),
        deflated(content),
        *others,
    )


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
    table = deflated(b"".join(rows), b"/Type/XRef/Size %d/W[1 4 1]/Root 1 0 R" % (len(rows) - 1 + count))
    return written + b"4 0 obj\n%s\nendobj\nstartxref\n%d\n%%%%EOF" % (table, len(written))


def deep_page_tree(depth: int) -> bytes:
    nodes = [
        b"<</Type/Pages/Kids[%d 0 R]/Count 1/Parent %d 0 R>>" % (number + 1, max(2, number - 1))
        for number in range(2, depth)
    ]
    page = b"<</Type/Page/Parent %d 0 R/MediaBox[0 0 300 300]>>" % (depth - 1)
    return pdf(b"<</Type/Catalog/Pages 2 0 R>>", *nodes, page)


def groups_in_groups(depth: int) -> bytes:
    """Forms that blend what the next one draws."""
    entries = FORM + b"/Group<</S/Transparency/I true>>/Resources<</ExtGState<</G<</ca 0.5/BM/Multiply>>>>%s>>"
    forms = [
        deflated(b"/G gs 0 0 3000 3000 re f /F Do", entries % (b"/XObject<</F %d 0 R>>" % (number + 1)))
        for number in range(5, 5 + depth)
    ]
    last = deflated(b"0 0 9 9 re f", FORM)
    return one_page(b"/F Do", *forms, last, resources=b"/XObject<</F 5 0 R>>", box=b"0 0 3000 3000")


def bombs() -> dict[str, tuple[bytes, set[str]]]:
    """Documents, and what may become of their pages."""
    return {
        "arrays in arrays": (one_page(b"[" * 2_000_000), {"damaged"}),
        "deep tree": (deep_page_tree(10_000), {"damaged", "timeout"}),
        "forms without end": (hanging_pdf(), {"timeout"}),
        "giant": (one_page(b"0 0 m 10 10 l S", box=b"0 0 1e30 1e30"), {"read"}),
        "groups": (groups_in_groups(200), {"out_of_memory", "timeout"}),
        "tall": (one_page(b"0 0 m 10 10 l S", box=b"0 0 1 1000000000"), {"damaged"}),
    }


def test_each_costs_its_row_bounded_time_and_bounded_memory(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    draw_pdf(tmp_path / "in" / "sound.pdf", "read me")
    may_become = {"sound": {"read"}}
    for name, (content, kinds) in bombs().items():
        (tmp_path / "in" / f"{name}.pdf").write_bytes(content)
        may_become[name] = kinds
    reading = ("--model", model, "--pages", "1", "--dpi", "72", "--max-new-tokens", "64")
    limits = ("--workers", "1", "--worker-memory", f"{WORKER_MEMORY >> 30}G", "--page-timeout", str(PAGE_TIMEOUT_S))
    out = tmp_path / "table.jsonl"
    started_s = time.monotonic()
    run_command(tmp_path / "in", "--out", out, *reading, *limits)
    seconds = time.monotonic() - started_s

    rows = read_rows(out)
    became = [
        (row.source.removesuffix(".pdf"), "read" if row.status in ("ok", "degraded") else row.error_kind)
        for row in rows
    ]
    assert {name for name, _ in became} == may_become.keys()
    assert [each for each in became if each[1] not in may_become[each[0]]] == []
    num_timeouts = sum(row.error_kind == "timeout" for row in rows)
    assert seconds < 60 + 2 * (PAGE_TIMEOUT_S + 5) * num_timeouts
    peak_bytes = json.loads(Path(f"{out}.report.json").read_text())["host_memory"]["peak_worker_bytes"]
    assert 0 < peak_bytes <= WORKER_MEMORY


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


@pytest.mark.long
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
