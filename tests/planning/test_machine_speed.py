"""Pieces of a fit are timed on this machine."""

import pytest

from parkrr.planning.machine_speed import (
    CELL,
    MachineSpeed,
    measure_quickly,
    measure_speed,
    time_work,
)

UNIT = MachineSpeed(*[1.0] * 8)


def test_every_piece_of_work_takes_some_time():
    assert min(vars(measure_speed(3, 1, 2)).values()) > 0


def test_a_speed_is_measured_once():
    assert measure_speed(3, 1, 2) is measure_speed(3, 1, 2)


def test_a_factor_of_the_timed_cell_takes_a_third_of_its_cube():
    assert UNIT.factor(CELL) == pytest.approx(CELL**3 / 3)


def test_a_product_takes_less_in_a_larger_cell():
    assert UNIT.factor(8000) / (8000**3 / 3) == pytest.approx(0.57, abs=0.02)


def test_work_is_timed_after_a_first_run():
    runs = []
    assert time_work(lambda: runs.append(1), repeats=3) >= 0
    assert len(runs) == 4


def test_a_quick_measurement_has_every_piece_but_those_that_choose():
    speed = vars(measure_quickly(3, 1, 2))
    zero = {name for name, seconds in speed.items() if seconds == 0}
    assert zero == {"comparison", "descent_step", "near"}
