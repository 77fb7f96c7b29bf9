"""The scikit-learn surface."""

from parkrr.estimators.classifier import ParKClassifier
from parkrr.estimators.load import load
from parkrr.estimators.regressor import ParKRegressor

__all__ = ["ParKClassifier", "ParKRegressor", "load"]
