"""Plots of a fitted model."""

from parkrr.plots.plots import (
    plot_cell_sizes,
    plot_error_against_time,
    plot_error_by_cell,
    plot_importances,
    plot_partition,
    plot_predictions,
    plot_tuning,
)

__all__ = [
    "plot_cell_sizes",
    "plot_error_against_time",
    "plot_error_by_cell",
    "plot_importances",
    "plot_partition",
    "plot_predictions",
    "plot_tuning",
]
