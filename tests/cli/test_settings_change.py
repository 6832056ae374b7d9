"""How much of the text another setting changes, as `doctor --compare` says it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from batchocr.cli import settings_change as module
from batchocr.cli.main import app
from batchocr.cli.settings_change import settings_change
from batchocr.config import Config
from batchocr.data import Block, PageResult
from batchocr.errors import UsageError
from tests.support.documents import write_table


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The text of the one page by the dtype that it is read in; nothing is read."""
    texts: dict[str, str] = {}

    def write(config: Config, inputs: object, *, out: Path, **_: object) -> None:
        text = texts[config.dtype]
        block = Block("text", (0.1, 0.1, 0.9, 0.2), 0, text)
        rows = [PageResult("a.pdf", 0, "ok", "d", 1, markdown=f"{text}\n", blocks=(block,))]
        write_table(out, rows)

    monkeypatch.setattr(module, "run_with", write)
    return texts


def test_a_changed_digit_is_a_changed_number_a_character_and_a_block(written: dict[str, str]) -> None:
    written.update(auto="It is 1,234.5 of 20, and 20 more", bfloat16="It is 1,284.5 of 20, and 20 more")
    assert settings_change(Config(), "dtype=bfloat16", ["a.pdf"]).splitlines() == [
        "compared    dtype auto with bfloat16",
        "pages       1 of 1 (100.00%) differ",
        "blocks      1 of 1 (100.00%) differ",
        "characters  1 of 32 (3.12%) differ",
        "numbers     1 of 3 (33.33%) differ",
    ]


def test_the_same_text_differs_in_nothing(written: dict[str, str]) -> None:
    written.update(auto="No number", bfloat16="No number")
    said = settings_change(Config(), "dtype=bfloat16", ["a.pdf"])
    assert "pages       0 of 1 (0.00%)" in said and "numbers     none of 0 differ" in said


@pytest.mark.parametrize("change", ["dpi=100", "dtype", "dtype=", "=fp8"])
def test_what_cannot_be_compared_is_said(change: str) -> None:
    with pytest.raises(UsageError, match="takes dtype, vit-dtype or backend and a value"):
        settings_change(Config(), change, ["a.pdf"])


@pytest.mark.long
@pytest.mark.slow
def test_with_a_real_model(sample_data: Path) -> None:
    page, model = sample_data / "documents" / "scanned-letter.png", sample_data / "model"
    flags = ["--device", "cpu", "--compare", "dtype=bfloat16", "--input", str(page)]
    done = CliRunner().invoke(app, ["doctor", "--model", str(model), *flags])
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert lines.keys() == {"compared", "pages", "blocks", "characters", "numbers"}
    share = float(lines["characters"].split("(")[1].split("%")[0])
    assert share < 5, "rounding changes little of what a trained model reads"
