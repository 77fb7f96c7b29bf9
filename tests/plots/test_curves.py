"""Plots of errors by penalty and by iteration show the numbers they are given."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from parkrr.inspection import IterationCurve, PenaltyPath
from parkrr.plots import plot_iteration_curve, plot_penalty_path

PENALTIES = np.array([1e-4, 1e-2, 1.0])
LEFT_OUT, TRAINING = np.array([0.4, 0.2, 0.9]), np.array([0.01, 0.1, 0.8])
VALIDATION = np.array([0.3, 0.5, 0.9])
DIMENSION = np.array([50.0, 7.0, 1.0])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def lines(ax):
    return {line.get_label(): line.get_ydata() for line in ax.lines}


def test_the_title_names_the_penalty_of_least_leave_one_out_error():
    path = PenaltyPath(PENALTIES, LEFT_OUT, TRAINING, None, DIMENSION)
    ax = plot_penalty_path(path)
    title = ax.get_title().replace("\n", " ")
    assert "leave-one-out error is 0.2, at penalty 1.0e-02 with 7 effective" in title
    np.testing.assert_array_equal(lines(ax)["leave-one-out"], LEFT_OUT)
    np.testing.assert_array_equal(lines(ax)["training"], TRAINING)
    assert "validation" not in lines(ax)


def test_validation_rows_decide_if_there_are_any():
    path = PenaltyPath(PENALTIES, LEFT_OUT, TRAINING, VALIDATION, DIMENSION)
    ax = plot_penalty_path(path)
    title = ax.get_title().replace("\n", " ")
    assert "validation error is 0.3, at penalty 1.0e-04 with 50 effective" in title
    np.testing.assert_array_equal(lines(ax)["validation"], VALIDATION)


def test_validation_errors_below_all_training_errors_are_inside_of_the_plot():
    below = np.array([0.004, 0.05, 0.9])  # of rows without noise
    ax = plot_penalty_path(PenaltyPath(PENALTIES, LEFT_OUT, TRAINING, below, DIMENSION))
    assert ax.get_ylim()[0] < 0.004


@pytest.mark.parametrize("validation", [None, np.array([1.0, 0.5, 0.301, 0.3])])
def test_the_title_names_the_iteration_from_which_errors_stay(validation):
    training = np.array([1.0, 0.5, 0.301, 0.3])
    given = training / 2 if validation is not None else training
    ax = plot_iteration_curve(IterationCurve(np.arange(4), given, validation))
    assert "After 2 iterations" in ax.get_title()
    np.testing.assert_array_equal(lines(ax)["training"], given)
