"""Ctrl-C in a Python program: what the handler does, when it is there, and that it is gone afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from batchocr.job import stop as stopping
from batchocr.job.stop import StopSwitch, finish_on_interrupt


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """Python's own handler, as in a program that sets none."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("phase", ["reading", "finishing"])
def test_the_first_interrupt_lets_the_block_finish_and_is_raised_after_it(phase: str) -> None:
    stop, finished = StopSwitch(), False
    with pytest.raises(KeyboardInterrupt), finish_on_interrupt(stop):
        stop.phase = phase  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # the same keystroke
        finished = True
    assert finished
    assert (stop.reason, stop.grace_is_over) == ("interrupted", False)


def test_a_second_interrupt_ends_the_block_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "SAME_KEYSTROKE_S", 0.0)
    stop, reached = StopSwitch(), False
    with pytest.raises(KeyboardInterrupt), finish_on_interrupt(stop):
        stop.phase = "reading"
        signal.raise_signal(signal.SIGINT)
        reached = True
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.grace_is_over
        raise KeyboardInterrupt
    assert reached


def test_before_the_first_page_the_first_interrupt_ends_the_block_at_once() -> None:
    stop = StopSwitch()
    with pytest.raises(KeyboardInterrupt), finish_on_interrupt(stop):
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it was not raised at once")
    assert stop.reason is None


def test_a_programs_own_handler_stays_and_decides() -> None:
    heard = []

    def own(number: int, _: object) -> None:
        heard.append(number)

    signal.signal(signal.SIGINT, own)
    stop = StopSwitch()
    with finish_on_interrupt(stop):
        stop.phase = "reading"
        assert signal.getsignal(signal.SIGINT) is own
        signal.raise_signal(signal.SIGINT)
    assert (heard, stop.reason) == ([signal.SIGINT], None)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_outside_of_the_main_thread_no_handler_is_set() -> None:
    seen: list[object] = []

    def look() -> None:
        with finish_on_interrupt(StopSwitch()):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_a_switch_is_set_by_another_one_and_says_why() -> None:
    callers = StopSwitch()
    stop = StopSwitch(3600.0, callers)
    assert stop.reason is None
    callers.request()
    assert (stop.reason, stop.grace_is_over) == ("requested", False)
    stop.end_grace()
    assert stop.grace_is_over
