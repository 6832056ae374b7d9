"""A running object store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.object_store import ObjectStore, running_store, used


@pytest.fixture(scope="session")
def running() -> Iterator[ObjectStore]:
    with running_store() as store:
        yield store


@pytest.fixture
def store(running: ObjectStore) -> Iterator[ObjectStore]:
    with used(running) as store:
        yield store
