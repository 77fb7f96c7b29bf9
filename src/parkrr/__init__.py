"""Kernel ridge regression by feature-space partitions (ParK)."""

from parkrr.classifier import ParKClassifier
from parkrr.loading import load
from parkrr.regressor import ParKRegressor
from parkrr.tables import scan_parquet

__all__ = ["ParKClassifier", "ParKRegressor", "__version__", "load", "scan_parquet"]
__version__ = "0.1.0.dev0"
