"""parkrr as a model of AutoGluon: a class for `hyperparameters` of a TabularPredictor.

Written for autogluon.tabular 1.6. It needs nothing that AutoGluon prepares beyond types of
columns: categories, booleans and missing values go to parkrr as they are.
"""

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from autogluon.common.features.types import R_BOOL, R_CATEGORY, R_FLOAT, R_INT
from autogluon.core.constants import REGRESSION
from autogluon.core.models import AbstractModel
from autogluon.core.utils.exceptions import NotEnoughMemoryError

from parkrr import LocalEngine, ParKClassifier, ParKRegressor
from parkrr.errors import BudgetError

SPENT = 0.8  # of a time limit is the time budget; fits took up to 1.4 times a budget of 20 s
# A plan times the machine, for two seconds or more: 19 of CPU time at 856 columns, longer than a
# fit of as many rows. Tables of few rows are bounded instead, above the plan of every one tried.
FEW_ROWS = 3000
LIBRARIES, KERNELS, COPIES = 3e8, 10, 40  # bytes; matrices of all pairs of rows; copies of X


class ParKModel(AbstractModel):
    """Kernel ridge regression by feature-space partitions.

    Hyperparameters are those of :class:`parkrr.ParKRegressor` or :class:`parkrr.ParKClassifier`,
    and ``use_X_val``, False by default: whether choices are made on the validation rows of
    AutoGluon. By default parkrr makes them by leave-one-out or on training rows of its own, so
    that the validation score stays one of rows that the model has not seen, and weights of
    ensembles follow from it. Set it to True if you pass `tuning_data` that differs from the
    training rows as your test rows do.

    A time limit becomes `time_budget`: with more time parkrr searches longer and makes larger
    cells. So it is fitted after the models of AutoGluon, with the time that these leave.
    `num_cpus` sets the threads of the engine.
    """

    ag_key = "PARK"
    ag_name = "ParK"
    ag_priority = 20  # LightGBM has 90, CatBoost 70, a neural network 25
    seed_name = "random_state"
    _supported_problem_types: ClassVar[list[str]] = ["binary", "multiclass", "regression"]
    _default_auxiliary_params_extra: ClassVar[dict[str, Any]] = {
        "valid_raw_types": [R_BOOL, R_INT, R_FLOAT, R_CATEGORY]
    }

    def _set_default_params(self) -> None:
        for name, value in {"use_X_val": False, "progress": False}.items():
            self._set_default_param_value(name, value)

    def _fit(
        self,
        X: pd.DataFrame,
        y: pd.Series,
        X_val: pd.DataFrame | None = None,
        y_val: pd.Series | None = None,
        time_limit: float | None = None,
        sample_weight: Any = None,
        sample_weight_val: Any = None,
        num_cpus: int = 1,
        **kwargs: Any,
    ) -> None:
        X = self.preprocess(X, y=y, is_train=True)
        params = self._get_model_params()
        validation = {}
        if params.pop("use_X_val") and X_val is not None:
            validation = {"X_val": self.preprocess(X_val), "y_val": y_val}
            validation["sample_weight_val"] = sample_weight_val
        params.setdefault("engine", LocalEngine(max(1, int(num_cpus))))
        if time_limit is not None:
            given = params.get("time_budget", "auto")
            budget = SPENT * time_limit
            params["time_budget"] = budget if given == "auto" else min(given, budget)
        model = build_estimator(self.problem_type, X, params)
        try:
            self.model = model.fit(X, y, sample_weight, **validation)
        except BudgetError as error:  # of the hyperparameter max_memory
            raise NotEnoughMemoryError(str(error)) from error

    def _get_maximum_resources(self) -> dict[str, int | float]:
        return {"num_gpus": 0}

    @classmethod
    def _estimate_memory_usage_static(
        cls,
        *,
        X: pd.DataFrame,
        hyperparameters: dict[str, Any] | None = None,
        problem_type: str | None = None,
        num_classes: int | None = None,
        **kwargs: Any,
    ) -> int:
        n, d = X.shape
        if n <= FEW_ROWS:
            return int(LIBRARIES + KERNELS * 8 * n**2 + COPIES * 8 * n * d)
        params = dict(hyperparameters or {})
        params.pop("use_X_val", None)
        labels = np.arange(num_classes or 2)  # a plan counts labels and looks at nothing else
        y = None if problem_type == REGRESSION else labels
        plan = build_estimator(problem_type, X, {**params, "max_memory": None}).plan(X, y)
        return int(plan.memory - plan.memory_now)

    @classmethod
    def _class_tags(cls) -> dict[str, Any]:
        return {"reset_torch_threads": True}

    def _more_tags(self) -> dict[str, Any]:
        # A fit to all rows makes its choices again, by leave-one-out, and needs no other rows.
        return {"can_refit_full": True}


def build_estimator(
    problem_type: str | None, X: pd.DataFrame, params: dict[str, Any]
) -> ParKRegressor | ParKClassifier:
    """The unfitted estimator for columns as AutoGluon passes them.

    Categories of AutoGluon are numbers in place of the text they stand for, which parkrr would
    take for numbers of a scale; so each column of categories is declared.
    """
    declared = dict.fromkeys(X.select_dtypes("category"), "category")
    columns = {**declared, **(params.get("columns") or {})}
    estimator = ParKRegressor if problem_type == REGRESSION else ParKClassifier
    return estimator(**{**params, "columns": columns})
