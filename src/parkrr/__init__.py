"""Kernel ridge regression by feature-space partitions (ParK)."""

from parkrr.estimators import ParKClassifier, ParKRegressor

__all__ = ["ParKClassifier", "ParKRegressor", "__version__"]
__version__ = "0.1.0.dev0"
