"""Lines of progress, events of choosing, and what ends it before its end."""

import logging
import math
import re
import signal

import pytest

from parkrr.runtime import ChoiceProgress, follow_choices, progress


@pytest.fixture(autouse=True)
def python_handles_interrupts():
    """As in a terminal: a process in the background of a shell ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_progress_outside_of_a_terminal_is_one_line_in_the_log(caplog):
    with (
        caplog.at_level(logging.INFO, "parkrr"),
        progress("fitting cells", total=30, unit="rows", shown=True) as tick,
    ):
        tick(10)
        tick(20)
    [record] = caplog.records
    assert record.getMessage().startswith("fitting cells: 30 rows in ")


def test_large_numbers_in_the_log_have_separators(caplog):
    with (
        caplog.at_level(logging.INFO, "parkrr"),
        progress("fitting cells", total=12_000, unit="rows", shown=True) as tick,
    ):
        tick(12_000)
    [record] = caplog.records
    written = r"fitting cells: 12,000 rows in 0\.0 s, [\d,]{7,} a second"
    assert re.fullmatch(written, record.getMessage())


@pytest.mark.parametrize(("total", "shown"), [(30, False), (0, True)])
def test_progress_that_is_not_shown_writes_nothing(total, shown, caplog):
    with (
        caplog.at_level(logging.INFO, "parkrr"),
        progress("fitting cells", total=total, unit="rows", shown=shown) as tick,
    ):
        tick(total)
    assert not caplog.records


def test_an_event_has_the_least_error_of_its_step_so_far():
    events = []
    choices = ChoiceProgress([events.append])
    choices.report("metric descent", "a", 0.3, 0.1)
    choices.report("metric descent", "b", 0.4, 0.2)
    choices.report("coarse comparison", "c", 0.5, 0.3)
    assert [event.best_error for event in events] == [0.3, 0.3, 0.5]


def test_the_share_that_is_done_never_falls_nor_exceeds_one():
    events = []
    choices = ChoiceProgress([events.append])
    choices.report("metric descent", "a", 0.3, 0.5)
    choices.report("metric descent", "a", 0.3, 0.4)
    choices.report("metric descent", "a", 0.3, 1.7)
    assert [event.share for event in events] == [0.5, 0.5, 1.0]


def test_a_deadline_that_has_passed_stops_choosing():
    late = ChoiceProgress(deadline=-math.inf)
    assert late.is_over
    assert late.stopped_by == "time budget"
    assert not ChoiceProgress().is_over


def test_only_a_callback_that_returns_true_stops_choosing():
    going, ending = ChoiceProgress([lambda event: 1]), ChoiceProgress([lambda event: True])
    going.report("metric descent", "a", 0.3, 0.5)
    ending.report("metric descent", "a", 0.3, 0.5)
    assert (going.stopped_by, ending.stopped_by) == ("", "callback")


def test_the_first_interrupt_stops_choosing_and_says_so(capsys):
    with follow_choices([], math.inf, shown=False) as choices:
        signal.raise_signal(signal.SIGINT)
    assert choices.stopped_by == "Ctrl-C"
    assert capsys.readouterr().err.count("Ctrl-C again stops at once") == 1


def interrupt_twice():
    with follow_choices([], math.inf, shown=False):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_the_second_interrupt_is_one_of_python():
    with pytest.raises(KeyboardInterrupt):
        interrupt_twice()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_program_stays_in_place(monkeypatch):
    caught = []
    before = signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    with follow_choices([], math.inf, shown=False) as choices:
        signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert caught == [signal.SIGINT]
    assert not choices.is_over


def test_choosing_outside_of_a_terminal_ends_with_a_line_in_the_log(caplog):
    with (
        caplog.at_level(logging.INFO, "parkrr"),
        follow_choices([], math.inf, shown=True) as choices,
    ):
        choices.report("sample search", "a", 0.25, 0.1)
    [record] = caplog.records
    assert record.getMessage().endswith("validation error 0.25")
