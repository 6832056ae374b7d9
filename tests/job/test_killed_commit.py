"""A command that writes a table is killed at one of its steps: whoever reads sees the table of before or that of after,
and the same command leaves what it would have left undisturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.jobs import FULL
from tests.support.nights import ANEW, FIRST_MERGE, FIRST_RUN, MERGE, NAMES, NIGHT, PRUNING, Archive, Order, spread

pytestmark = pytest.mark.slow

FILE, LINES, FOLDER = NAMES
NUM_STEPS = 1000 if FULL else 2
"""At how many of a command's steps it is killed."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Archive:
    return Archive(tmp_path_factory.mktemp("archive"), model, None)


@pytest.mark.parametrize(
    ("form", "order"),
    [
        pytest.param(FILE, PRUNING, marks=pytest.mark.long),
        pytest.param(LINES, PRUNING, marks=pytest.mark.long),
        (FOLDER, PRUNING),
        pytest.param(FOLDER, NIGHT, marks=pytest.mark.long),
        pytest.param(FOLDER, FIRST_RUN, marks=pytest.mark.long),
        pytest.param(FOLDER, ANEW, marks=pytest.mark.long),
        pytest.param(LINES, FIRST_MERGE, marks=pytest.mark.long),
        pytest.param(FOLDER, FIRST_MERGE, marks=pytest.mark.long),
        (FOLDER, MERGE),
    ],
    ids=str,
)
def test_a_kill_at_any_step_loses_doubles_and_hides_nothing(archive: Archive, form: str, order: Order) -> None:
    for step in spread(NUM_STEPS, len(archive.night(form, order).expected.end.steps)):
        night = archive.night(form, order)
        with night.machine("one") as machine:
            assert night.run(machine, step=step).is_killed
            assert not [*night.check_ours(), *night.check_theirs()], night.ends[0].steps
            night.run(machine)
        assert not [*night.check_end(is_third=False), *night.check_theirs()], night.ends[0].steps
