"""An estimator with nothing left to choose: what tests of one thing hold fixed."""

from parkrr import ParKRegressor

PLAIN = {
    "kernel": "gaussian",
    "penalty": 1e-6,
    "metric": "euclidean",
    "centroids": "greedy",
    "blend": 1,
    "coarse": 0,
}


def plain(kernel="gaussian", **changes):
    return ParKRegressor(**{**PLAIN, "kernel": kernel, **changes})
