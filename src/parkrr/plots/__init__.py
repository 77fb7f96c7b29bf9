"""Plots of a fitted estimator."""

from parkrr.plots.curves import plot_iteration_curve, plot_penalty_path
from parkrr.plots.drawing import draw_png
from parkrr.plots.explanations import (
    plot_explanation,
    plot_interaction,
    plot_partial_dependence,
)
from parkrr.plots.plots import (
    plot_cell_sizes,
    plot_error_by_cell,
    plot_importances,
    plot_partition,
    plot_predictions,
    plot_residuals,
    plot_tuning,
)
