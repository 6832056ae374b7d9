"""Whatever the documents do to their workers, and whoever kills these: what is true of every run."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from tests.support.simulated import (
    CRASHES,
    DAMAGED,
    HANGS,
    KILLED,
    OUT_OF_MEMORY,
    Seconds,
    Simulated,
    SimulatedMachine,
)

DEADLY = (HANGS, CRASHES, OUT_OF_MEMORY, KILLED)
TROUBLE: list[Seconds] = [*DEADLY, *((deadly, 0.1) for deadly in DEADLY), (KILLED, KILLED, 0.1)]


def random_document(chance: random.Random) -> Simulated:
    def seconds(trouble: float) -> Seconds:
        sound = [0.01] * 5 + [0.1] * 5 + [2.0, 9.0]
        return chance.choice(TROUBLE if chance.random() < trouble else sound)

    trouble = chance.choice([0, 0, 0, 0.1, 0.5])
    return Simulated(
        [seconds(trouble) for _ in range(chance.choice([0, 1, 1, 1, 2, 3, 5, 8, 20]))],
        open_s=seconds(0.4),
        opens=chance.random() > 0.05,
        problem=DAMAGED if chance.random() < 0.08 else None,
    )


def is_deadly(seconds: Seconds) -> bool:
    return seconds in TROUBLE


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_every_run_ends_and_has_each_row_once_and_no_page_costs_many_workers(seed: int) -> None:
    chance = random.Random(seed)
    prefix = chance.choice(["/", "/", "s3://b/"])
    num_documents = chance.choice([1, 2, 4, 8, 15, 40])
    documents = {f"{prefix}{number}": random_document(chance) for number in range(num_documents)}
    kills = [chance.uniform(0, 60) for _ in range(chance.choice([0, 0, 0, 1, 5, 20]))]
    answer_s, workers = chance.choice([0, 0, 0.05, 1.0, 7.0]), chance.randint(1, 5)
    machine = SimulatedMachine(documents, workers, answer_s=answer_s, kills=kills)
    pages_in_flight, most = chance.randint(1, 8), chance.randint(1, 30)
    bound = chance.choice([{}, {"limit": most}, {"max_unreleased": most}])

    rows = {}
    for row in machine.rows(pages_in_flight=pages_in_flight, **bound):
        assert row.key not in rows
        rows[row.key] = row.result

    assert machine.most_in_flight <= pages_in_flight
    assert max(machine.cost.values(), default=0) <= 5
    indices = defaultdict(list)
    for key in sorted(rows, key=lambda key: (key.document, key.page_index or 0)):
        indices[key.document].append(key.page_index)
    expected = []
    for number, document in enumerate(documents.values()):
        is_whole = indices[number] == [None]
        assert not is_whole or not document.pages or not document.opens or is_deadly(document.open_s) or kills
        expected += [(number, index) for index in ([None] if is_whole else range(len(document.pages)))]
    assert [(number, index) for number in indices for index in indices[number]] == expected[: bound.get("limit")]
    for key, result in rows.items():
        document = documents[result.source]
        if key.page_index is not None and result.status == "failed" and document.problem is None and not kills:
            is_given_up = "not tried" in str(result.error_message)
            assert is_given_up or is_deadly(document.pages[key.page_index])
