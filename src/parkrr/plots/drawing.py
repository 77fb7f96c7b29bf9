"""What all plots share: colours, axes, titles, PNG. matplotlib is imported only here.

Plots on axes of their own, and all plots of a report, look the same whatever matplotlib style is
active. On axes that you give, they follow your style.
"""

import io
import textwrap
import warnings
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from parkrr.errors import ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

P = ParamSpec("P")
# Colours of Okabe and Ito, which people with any colour vision can tell apart.
BLUE, RED, GREY, GOLD = "#0072b2", "#d55e00", "#8c8c8c", "#f0e442"
PALETTE = [BLUE, RED, "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a6a53"]
FEATURES = 20  # bars of features


def with_own_style(plot: Callable[P, "Axes"]) -> Callable[P, "Axes"]:
    """The plot in matplotlib's default style where it makes axes of its own."""

    @wraps(plot)
    def draw(*args: P.args, **kwargs: P.kwargs) -> "Axes":
        if kwargs.get("ax") is not None:
            return plot(*args, **kwargs)
        check_matplotlib()
        from matplotlib import style  # noqa: PLC0415 - optional, and slow to import

        with style.context("default"):
            return plot(*args, **kwargs)

    return draw


def draw_png(plot: Callable[..., object], *args: Any) -> bytes:
    """plot(*args) as PNG without a background; pyplot, and so your own plots, is not touched."""
    check_matplotlib()
    from matplotlib import style  # noqa: PLC0415 - optional, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    file = io.BytesIO()
    with style.context("default"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # of a name, which the report has as text too
        figure = Figure(figsize=(4.8, 3.6), layout="constrained")
        plot(*args, ax=figure.subplots())
        figure.savefig(file, format="png", dpi=160, transparent=True)
    return file.getvalue()


def check_matplotlib() -> None:
    """Refuse to draw without it."""
    try:
        import matplotlib  # noqa: F401, PLC0415 - optional, and slow to import
    except ImportError as error:
        raise ParameterError(
            "a plot needs matplotlib, which is not installed; pip install 'parkrr[plot]'"
        ) from error


def new_axes(ax: "Axes | None") -> "Axes":
    """The ax that was given, or a new one."""
    if ax is not None:
        return ax
    check_matplotlib()
    import matplotlib.pyplot as plt  # noqa: PLC0415 - optional, and slow to import

    return plt.subplots(figsize=(6.4, 4.4), layout="constrained")[1]


def ink(ax: "Axes") -> Any:
    """The colour of text on these axes: black, or white in a dark style."""
    return ax.xaxis.label.get_color()


def finish(ax: "Axes", title: str, x: str, y: str, wrap: int = 54) -> "Axes":
    """Give all plots the same look, with a title of lines of so many letters."""
    ax.set_title(textwrap.fill(title, wrap), fontsize=11)
    ax.set(xlabel=x, ylabel=y, axisbelow=True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    return ax


def separate_thousands(ax: "Axes", axes: str = "xy") -> None:
    """Write numbers on a linear axis as 12,000 where they are large, and as before elsewhere."""
    for name in axes:
        low, high = ax.get_xlim() if name == "x" else ax.get_ylim()
        if 1e4 <= max(abs(low), abs(high)) < 1e9:
            (ax.xaxis if name == "x" else ax.yaxis).set_major_formatter("{x:,.0f}")


def legend_below(ax: "Axes") -> None:
    """Put the legend where it hides nothing."""
    ax.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.18))


def write(ax: "Axes", text: str) -> "Axes":
    """Write text where there is nothing to draw."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, textwrap.fill(text, 40), ha="center", va="center", transform=ax.transAxes)
    return ax


def draw_bars(
    ax: "Axes", lengths: NDArray[np.float64], names: list[str], color: str | list[str]
) -> None:
    """Named horizontal bars, the first one on top."""
    places = np.arange(len(lengths))
    ax.barh(places, lengths, color=color, alpha=0.85)
    ax.set_yticks(places, names)
    ax.tick_params("y", labelsize=8 if len(lengths) > 12 else 10)
    ax.set_ylim(max(len(lengths), 5) - 0.5, -0.5)  # so that one bar does not fill the plot


def limits(values: NDArray[Any]) -> tuple[float, float]:
    """Limits of an axis that a few extreme values do not stretch."""
    low, high = np.quantile(values, [0.003, 0.997]).tolist()
    margin = 0.08 * (high - low) or 0.5
    return low - margin, high + margin


def marker_size(count: int) -> float:
    """Area of a marker, in points squared, for so many of them."""
    return float(np.clip(3000 / max(count, 1), 3, 60))


def short_name(name: object, most: int = 22) -> str:
    """A name of a feature, cut, and with dollar signs that matplotlib prints as they are."""
    text = str(name)
    return (text if len(text) <= most else f"{text[:most]}…").replace("$", r"\$")
