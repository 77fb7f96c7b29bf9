"""The example model class for AutoGluon, in AutoGluon's own checks and beside the estimators."""

import numpy as np
import pandas as pd
import pytest

from parkrr import Gaussian, LocalEngine, ParKClassifier, ParKRegressor

pytest.importorskip(
    "autogluon.tabular",
    reason="needs autogluon.tabular, which is not in the dev extra: it adds 1.0 GB to torch, takes "
    "72 s of CPU time to install, and caps pandas below 2.4, pyarrow below 25",
)

from autogluon.core.utils.exceptions import NotEnoughMemoryError
from autogluon.tabular import TabularPredictor
from autogluon.tabular.testing import FitHelper
from parkrr_autogluon import ParKModel

pytestmark = pytest.mark.filterwarnings("default")  # those of AutoGluon are not ours

QUICK = {"kernel": Gaussian(2.0), "penalty": 1e-3, "metric": "standard", "blend": 1, "coarse": 0}
RNG = np.random.default_rng(0)
FLATS = pd.DataFrame(
    {
        "size": RNG.normal(size=300),
        "district": pd.Categorical.from_codes(RNG.integers(0, 3, 300), [0, 1, 2]),
    }
)
FLATS.loc[::10, "size"] = np.nan
RENT = pd.Series(FLATS["size"].fillna(0) + np.array([3.0, 0.0, 5.0])[FLATS["district"].cat.codes])
WEIGHTS = RNG.uniform(0.1, 2.0, 300)
VALIDATION = {"X_val": FLATS[:60], "y_val": -RENT[:60]}  # by which the largest penalty is best


def fit_alone(problem_type, y, tmp_path, hyperparameters=QUICK, **arguments):
    model = ParKModel(
        path=str(tmp_path), problem_type=problem_type, hyperparameters=dict(hyperparameters)
    )
    return model.fit(X=FLATS, y=y, num_cpus=1, num_gpus=0, **arguments)


def declared(estimator, **params):
    return estimator(**QUICK | params, columns={"district": "category"}, random_state=0)


@pytest.mark.parametrize("problem_type", ["binary", "multiclass", "regression"])
def test_the_class_passes_the_checks_of_autogluon(problem_type, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where they write
    FitHelper.verify_model(
        model_cls=ParKModel,
        model_hyperparameters=QUICK,
        problem_types=[problem_type],
        bag=True,
        refit_full=True,
        extra_metrics=True,
    )


def test_a_predictor_reads_text_as_categories_and_loads_the_same_model(tmp_path):
    text = FLATS.assign(district=FLATS["district"].map({0: "hill", 1: "port", 2: "park"}))
    predictor = TabularPredictor("rent", path=str(tmp_path / "predictor"), verbosity=0)
    predictor.fit(text.assign(rent=RENT), hyperparameters={ParKModel: QUICK})
    inner = predictor._trainer.load_model("ParK").model
    kinds = {column["column"]: column["kind"] for column in inner.columns_.describe()}
    assert kinds == {"size": "number", "district": "category"}
    again = TabularPredictor.load(str(tmp_path / "predictor"))
    np.testing.assert_array_equal(again.predict(text), predictor.predict(text))


def test_predictions_and_weights_are_those_of_the_regressor(tmp_path):
    model = fit_alone("regression", RENT, tmp_path, sample_weight=WEIGHTS)
    expected = declared(ParKRegressor).fit(FLATS, RENT, WEIGHTS).predict(FLATS)
    np.testing.assert_allclose(model.predict(FLATS), expected, rtol=1e-5)
    assert model.model.engine == LocalEngine(1)


def test_probabilities_are_those_of_the_classifier(tmp_path):
    labels = pd.Series(FLATS["district"].cat.codes, dtype=int)
    model = fit_alone("multiclass", labels, tmp_path)
    expected = declared(ParKClassifier).fit(FLATS, labels).predict_proba(FLATS)
    np.testing.assert_allclose(model.predict_proba(FLATS), expected, atol=1e-6)


@pytest.mark.parametrize(("use_X_val", "seen"), [(False, {}), (True, VALIDATION)])
def test_choices_see_the_validation_rows_of_autogluon_only_if_asked_to(use_X_val, seen, tmp_path):
    params = QUICK | {"penalty": "auto", "use_X_val": use_X_val}
    model = fit_alone("regression", RENT, tmp_path, params, **VALIDATION)
    expected = declared(ParKRegressor, penalty="auto").fit(FLATS, RENT, **seen)
    assert model.model.chosen_.params["penalty"] == expected.chosen_.params["penalty"]


@pytest.mark.parametrize(("given", "budget"), [("auto", 80), (1000, 80), (50, 50)])
def test_the_time_budget_is_the_smaller_of_yours_and_of_the_time_limit(given, budget, tmp_path):
    params = QUICK | {"time_budget": given}
    model = fit_alone("regression", RENT, tmp_path, params, time_limit=100)
    assert model.model.time_budget == pytest.approx(budget, abs=10)  # less what came before the fit


@pytest.mark.parametrize(("rows", "columns"), [(500, 60), (3000, 3), (4000, 3)])
def test_the_estimate_of_memory_is_at_least_that_of_the_plan(rows, columns):
    X = pd.DataFrame(RNG.normal(size=(rows, columns)))
    estimate = ParKModel.estimate_memory_usage_static(
        X=X, hyperparameters=QUICK, problem_type="regression"
    )
    plan = ParKRegressor(**QUICK).plan(X)
    assert estimate >= 0.9 * (plan.memory - plan.memory_now)  # the process grows by a few MB
    assert estimate >= 8 * rows**2


def test_too_little_memory_is_reported_as_autogluon_expects_it(tmp_path):
    with pytest.raises(NotEnoughMemoryError, match="max_memory"):
        fit_alone("regression", RENT, tmp_path, QUICK | {"max_memory": 1000})
