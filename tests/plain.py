"""An estimator with nothing left to choose: what tests of one thing hold fixed."""

from dataclasses import replace

import torch

from parkrr import Blend, LocalEngine, ParKRegressor
from parkrr.kernels import Gaussian
from parkrr.park import FitSettings
from parkrr.solvers import Falkon

PLAIN = {
    "kernel": Gaussian(),
    "penalty": 1e-6,
    "metric": "euclidean",
    "centroids": "greedy",
    "blend": 1,
    "coarse": 0,
}


PAPER = FitSettings(
    kernel=Gaussian(),
    penalty=1e-6,
    metric="euclidean",
    n_cells=4,
    n_centers=100,
    centroids="greedy",
    n_candidates=None,
    balance=False,
    blend=Blend(),
    coarse=None,
    solver="direct",
    falkon=Falkon(max_iter=200, tol=1e-12),
    fit_intercept=False,
    dtype=torch.float64,
    engine=LocalEngine(1),
    seed=0,
    shown=False,
)


def fit_settings(**changes):
    """Settings of Algorithm 1 to the letter of the paper, with changes."""
    return replace(PAPER, **changes)


def plain(kernel=PLAIN["kernel"], **changes):
    return ParKRegressor(**{**PLAIN, "kernel": kernel, **changes})
