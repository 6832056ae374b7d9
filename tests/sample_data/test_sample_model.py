"""The sample model loads as MinerU2.5 does; what it reads is in tests/runs/test_sample_documents.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoConfig

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(sample_data: Path) -> Path:
    return sample_data / "model"


def test_the_config_has_the_layout_of_the_newest_mineru_models(folder: Path) -> None:
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    assert config.architectures == ["Qwen2VLForConditionalGeneration"]
    assert '"text_config"' in (folder / "config.json").read_text()
    assert not config.text_config.tie_word_embeddings
