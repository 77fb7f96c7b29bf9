"""Everything public has an example, which the doctests of CI run."""

import inspect

import pytest

import parkrr
from parkrr import diagnostics, engine, fit, kernels, metrics, partition, plan, plots, theory
from parkrr.ray_engine import RayEngine

CLASSES = [parkrr.ParKRegressor, parkrr.ParKClassifier]
METHODS = [
    method
    for kind in CLASSES
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_") and method.__module__.startswith("parkrr")
]
KERNELS = [kernels.Gaussian, kernels.Laplacian, kernels.Matern, kernels.Polynomial, kernels.Linear]
PICTURES = [picture for name, picture in vars(plots).items() if name.startswith("plot_")]
QUESTIONS = [
    diagnostics.balance,
    diagnostics.border_jumps,
    diagnostics.cell_table,
    diagnostics.errors_by_cell,
    diagnostics.theory_of,
    diagnostics.worst_rows,
    theory.theory,
]
OTHERS = [
    parkrr.load,
    parkrr.scan_parquet,
    engine.LocalEngine,
    RayEngine,
    fit.Coarse,
    metrics.FeatureMap,
    partition.Blend,
    plan.Plan,
]
PUBLIC = [*CLASSES, *METHODS, *KERNELS, *PICTURES, *QUESTIONS, *OTHERS]


@pytest.mark.parametrize("thing", PUBLIC, ids=lambda thing: thing.__qualname__)
def test_it_has_an_example(thing):
    assert ">>> " in thing.__doc__
