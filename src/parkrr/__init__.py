"""Kernel ridge regression by feature-space partitions (ParK)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parkrr.data import scan_csv, scan_parquet
    from parkrr.estimators import ParKClassifier, ParKRegressor, load
    from parkrr.kernels import (
        FeatureMap,
        Gaussian,
        Laplacian,
        Linear,
        Matern,
        Polynomial,
    )
    from parkrr.park import Coarse
    from parkrr.partition import Blend
    from parkrr.runtime import FitEvent, LocalEngine
    from parkrr.runtime.ray_engine import RayEngine
    from parkrr.sources import scan

__all__ = [
    "Blend",
    "Coarse",
    "FeatureMap",
    "FitEvent",
    "Gaussian",
    "Laplacian",
    "Linear",
    "LocalEngine",
    "Matern",
    "ParKClassifier",
    "ParKRegressor",
    "Polynomial",
    "RayEngine",
    "__version__",
    "load",
    "scan",
    "scan_csv",
    "scan_parquet",
]
__version__ = "0.1.0"

# The folder that each public name comes from; docs/api lists the same names.
PUBLIC = {
    "Blend": "partition",
    "Coarse": "park",
    "FeatureMap": "kernels",
    "FitEvent": "runtime",
    "Gaussian": "kernels",
    "Laplacian": "kernels",
    "Linear": "kernels",
    "LocalEngine": "runtime",
    "Matern": "kernels",
    "ParKClassifier": "estimators",
    "ParKRegressor": "estimators",
    "Polynomial": "kernels",
    "RayEngine": "runtime.ray_engine",
    "load": "estimators",
    "scan": "sources",
    "scan_csv": "data",
    "scan_parquet": "data",
}
MODULES = ("errors", "inspection", "kernels", "plots", "theory")


def __getattr__(name: str) -> Any:
    """Import a public name or module on first access.

    torch and scikit-learn take 3 s to import, for which `parkrr --help` and completion in a
    shell would wait.
    """
    if name in PUBLIC:
        return getattr(import_module(f"parkrr.{PUBLIC[name]}"), name)
    if name in MODULES:
        return import_module(f"parkrr.{name}")
    raise AttributeError(f"module 'parkrr' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *MODULES])
