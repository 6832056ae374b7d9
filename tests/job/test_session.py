"""What a session says about its model."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from batchocr.config import Config
from batchocr.job.session import Session
from batchocr.output.schema import facts_from_json, facts_to_json
from tests.support.running import QUICK_MODEL

COMMIT = "c" * 40


def test_the_commit_of_a_model_from_the_hub_is_a_fact_and_a_local_folder_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "models--acme--reader" / "snapshots" / COMMIT
    shutil.copytree(QUICK_MODEL, folder)
    local = Session(Config(model=str(folder))).facts
    monkeypatch.setattr("batchocr.job.session.find_checkpoint", lambda name, revision: folder)
    hub = Session(Config(model="acme/reader")).facts
    assert (hub.model, hub.model_revision, local.model_revision) == ("acme/reader", COMMIT, "")
    assert hub.settings_fingerprint == local.settings_fingerprint


def test_a_model_in_a_folder_whose_name_is_no_text_has_facts_and_settings_that_can_be_written(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/mod\xe9l")
    shutil.copytree(QUICK_MODEL, folder)
    session = Session(Config(model=folder, device="cpu"))
    facts = facts_from_json(facts_to_json(session.facts))
    assert facts is not None
    assert facts.model == session.settings()["model"] == f"{tmp_path}/mod\\udce9l"
