"""Pages of the sample that lie on a side or upside down, read by the sample model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

import batchocr
from batchocr.data import Block, PageResult
from batchocr.pages.input.render import open_document
from batchocr.pages.protocol.revision import has_classifier
from batchocr.pages.turning import turned_block

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not has_classifier(), reason="the extra orientation is missing")]

ReadTurned = Callable[[int], PageResult]


@pytest.fixture(scope="module")
def read_turned(home: Path, sample_data: Path, tmp_path_factory: pytest.TempPathFactory) -> ReadTurned:
    """Reads a page of the sample, turned clockwise."""
    document = open_document(str(sample_data / "documents" / "encrypted.pdf"), password="batchocr", dpi=150)
    page = document.render(0).image
    document.close()
    image = page.crop((0, 0, page.width, page.height // 2))
    folder = tmp_path_factory.mktemp("turned")

    def read(turn: int) -> PageResult:
        image.rotate(-turn, Image.Resampling.NEAREST, expand=True).save(folder / f"{turn}.png")
        [page] = batchocr.process(folder / f"{turn}.png", model=sample_data / "model", orientation="turn")
        return page

    return read


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a user whose onnxruntime would send telemetry: it does not where tests run."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HOME", str(home))
        for name in ("ORT_DISABLE_TELEMETRY", "CI", "XDG_CACHE_HOME"):
            patched.delenv(name, raising=False)
        yield home


@pytest.fixture(scope="module")
def upright(read_turned: ReadTurned) -> PageResult:
    return read_turned(0)


@pytest.mark.parametrize(
    "turn", [90, pytest.param(180, marks=pytest.mark.long), pytest.param(270, marks=pytest.mark.long)]
)
def test_a_turned_page_has_the_text_of_the_upright_one_where_it_is_on_the_page(
    read_turned: ReadTurned, upright: PageResult, turn: int
) -> None:
    page = read_turned(turn)
    assert (upright.orientation, page.orientation) == (0, 360 - turn)
    size = (upright.width, upright.height)
    assert (page.width, page.height) == (size if turn == 180 else size[::-1])
    assert page.markdown == upright.markdown
    assert [block.content for block in page.blocks] == [block.content for block in upright.blocks] != []
    for block, wanted in zip(page.blocks, (turned_block(block, turn) for block in upright.blocks), strict=True):
        assert block.angle == wanted.angle
        assert is_within_a_pixel(block, wanted, page)


def test_the_classifier_tells_its_makers_nothing(upright: PageResult, home: Path) -> None:
    """What onnxruntime has to report it keeps in the user's cache first."""
    assert upright.orientation == 0
    assert not (home / ".cache" / "Microsoft").exists()


def is_within_a_pixel(one: Block, other: Block, page: PageResult) -> bool:
    sides = (page.width, page.height) * 2
    return all(abs(a - b) * (side or 0) <= 1 for a, b, side in zip(one.bbox, other.bbox, sides, strict=True))
