"""Kernel ridge regression by feature-space partitions (ParK)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parkrr.classifier import ParKClassifier
    from parkrr.loading import load
    from parkrr.regressor import ParKRegressor
    from parkrr.tables import scan_parquet

__all__ = ["ParKClassifier", "ParKRegressor", "__version__", "load", "scan_parquet"]
__version__ = "0.1.0.dev0"

HOMES = {
    "ParKClassifier": "parkrr.classifier",
    "ParKRegressor": "parkrr.regressor",
    "load": "parkrr.loading",
    "scan_parquet": "parkrr.tables",
}


def __getattr__(name: str) -> Any:
    """A public name or a module, imported when it is first asked for.

    torch and scikit-learn take 3 s, for which `parkrr --help` and completion in a shell would wait.
    """
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    try:
        return import_module(f"parkrr.{name}")
    except ModuleNotFoundError as missing:
        if missing.name != f"parkrr.{name}":
            raise
        raise AttributeError(f"module 'parkrr' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted(__all__)
