"""Plots of errors by penalty and by iteration."""

from typing import TYPE_CHECKING

import numpy as np

from parkrr.inspection import IterationCurve, PenaltyPath
from parkrr.plots.drawing import BLUE, GREY, RED, finish, ink, new_axes, with_own_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLOSE = 1.01  # of the last error: what counts as having arrived


@with_own_style
def plot_penalty_path(path: PenaltyPath, *, ax: "Axes | None" = None) -> "Axes":
    """Leave-one-out, training and validation errors against the penalty.

    Parameters
    ----------
    path : PenaltyPath
        What :func:`parkrr.inspection.penalty_path` returned.
    ax : matplotlib.axes.Axes, default=None
        Where to draw. None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, to be changed or saved.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, inspection, plots
    >>> X = np.linspace(0, 6, 100)[:, None]
    >>> path = inspection.penalty_path(Gaussian(1.0), X, np.sin(X[:, 0]), np.logspace(-6, 0, 10))
    >>> plots.plot_penalty_path(path).get_xlabel()
    'penalty'
    """
    ax = new_axes(ax)
    ax.loglog(path.penalties, path.training, color=GREY, label="training")
    ax.loglog(path.penalties, path.leave_one_out, color=BLUE, label="leave-one-out")
    errors, name = path.leave_one_out, "leave-one-out"
    if path.validation is not None:
        ax.loglog(path.penalties, path.validation, color=RED, label="validation")
        errors, name = path.validation, "validation"
    best = int(errors.argmin())
    ax.axvline(path.penalties[best], color=ink(ax), linestyle=":", linewidth=1)
    # Training errors next to zero penalty would squeeze all others into a line.
    least = min(float(path.training.min()), float(errors[best]))
    ax.set_ylim(bottom=max(0.9 * least, float(errors[best]) / 5))
    ax.legend(frameon=False)
    title = (
        f"The least {name} error is {errors[best]:.3g}, at penalty {path.best:.1e} with "
        f"{path.effective_dimension[best]:.0f} effective dimensions"
    )
    return finish(ax, title, "penalty", "root mean squared error")


@with_own_style
def plot_iteration_curve(curve: IterationCurve, *, ax: "Axes | None" = None) -> "Axes":
    """Training and validation errors after each iteration of FALKON.

    Parameters
    ----------
    curve : IterationCurve
        What :func:`parkrr.inspection.iteration_curve` returned.
    ax : matplotlib.axes.Axes, default=None
        Where to draw. None makes a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes, to be changed or saved.

    Examples
    --------
    >>> import numpy as np
    >>> from parkrr import Gaussian, ParKRegressor, inspection, plots
    >>> X = np.linspace(0, 6, 400)[:, None]
    >>> model = ParKRegressor(Gaussian(1.0), 1e-6, n_cells=1, n_centers=50).fit(X, np.sin(X[:, 0]))
    >>> curve = inspection.iteration_curve(model, X, np.sin(X[:, 0]), max_iter=5)
    >>> plots.plot_iteration_curve(curve).get_xlabel()
    'iterations'
    """
    ax = new_axes(ax)
    errors, name = curve.training, "training"
    if curve.validation is not None:
        ax.semilogy(curve.iterations, curve.training, color=GREY, marker=".", label="training")
        errors, name = curve.validation, "validation"
    color = BLUE if curve.validation is None else RED
    ax.semilogy(curve.iterations, errors, color=color, marker=".", label=name)
    far = np.flatnonzero(np.abs(errors - errors[-1]) > (CLOSE - 1) * errors[-1])
    arrived = int(far[-1]) + 1 if len(far) else 0
    ax.axvline(arrived, color=ink(ax), linestyle=":", linewidth=1)
    ax.legend(frameon=False)
    title = (
        f"After {arrived} iterations the {name} error stays within 1 % of {errors[-1]:.3g}, that "
        f"after {curve.iterations[-1]}"
    )
    return finish(ax, title, "iterations", "root mean squared error")
