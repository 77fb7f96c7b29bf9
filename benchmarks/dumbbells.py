"""Errors and seconds of methods, one row for each data set, with a line between the methods."""

import numpy as np

# Colours that people with any colour vision can tell apart (Okabe and Ito), and markers besides.
LOOKS = {
    "parkrr": ("#0072b2", "o"),
    "LightGBM": ("#e69f00", "s"),
    "LightGBM, 1,000 trees": ("#d55e00", "D"),
    "CatBoost": ("#009e73", "^"),
}
SHOWN = (0.25, 2.0)  # ratios of errors; others are drawn at the edge


def draw_dumbbells(results, methods, baseline, path, seconds="fit_seconds"):
    """Errors over that of `baseline`, and seconds; `methods` are names to show, by method."""
    from matplotlib import style
    from matplotlib.figure import Figure

    known = {task: r for task, r in results.items() if "error" in r.get(baseline, {})}
    first, looks = next(iter(methods)), [LOOKS[name] for name in methods.values()]
    tasks = sorted(known, key=lambda task: ratio(known[task], first, baseline))
    with style.context("default"):
        figure = Figure(figsize=(9, 0.36 * len(tasks) + 1.5), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
        for row, task in enumerate(tasks):
            own = known[task]
            ratios = np.array([ratio(own, method, baseline) for method in methods])
            times = np.array([own.get(method, {}).get(seconds, np.nan) for method in methods])
            inside = np.clip(ratios, *SHOWN)
            for ax, values in ((left, inside), (right, times)):
                ax.hlines(row, np.nanmin(values), np.nanmax(values), color="#c8c8c8", zorder=1)
                for k, (value, (color, marker)) in enumerate(zip(values, looks, strict=True)):
                    ax.scatter(value, row, 44, color, marker=marker, zorder=20 - k)
            for value, place in zip(ratios, inside, strict=True):
                if value != place and not np.isnan(value):
                    side = {"xytext": (6, 3), "textcoords": "offset points", "size": 8}
                    left.annotate(f"← {value:.2g}", (place, row), **side)
        for name, (color, marker) in zip(methods.values(), looks, strict=True):
            left.scatter([], [], 44, color, marker=marker, label=name)
        left.axvline(1, color="black", linewidth=0.8, zorder=2)
        left.set_yticks(range(len(tasks)), [task.replace(":cls", ", classes") for task in tasks])
        left.set_ylim(len(tasks) - 0.5, -0.5)
        left.set(xscale="log", xlim=(SHOWN[0] / 1.12, SHOWN[1] * 1.12))
        left.set_xticks([0.25, 0.5, 1, 2], ["¼", "½", "1", "2"])
        edge = "lower is better; arrows: beyond the edge"
        left.set_xlabel(f"test error, over that of {methods[baseline]}\n({edge})")
        right.set(xscale="log", xlabel="seconds to fit, two cores")
        right.xaxis.set_major_formatter("{x:,g}")
        for ax in (left, right):
            ax.minorticks_off()
            ax.spines[["top", "right", "left"]].set_visible(False)
            ax.tick_params("y", length=0)
            ax.grid(axis="x", alpha=0.3, linewidth=0.6)
        figure.legend(loc="outside upper center", ncols=len(methods), frameon=False)
        figure.savefig(path, dpi=110)


def ratio(own, method, baseline):
    """The error of a method over that of the baseline, or nan."""
    return own.get(method, {}).get("error", np.nan) / max(own[baseline]["error"], 1e-12)
