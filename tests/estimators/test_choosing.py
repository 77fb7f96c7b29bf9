"""What a user may do while a fit chooses, and how often it chooses at all."""

import signal

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from parkrr import Matern, ParKClassifier, ParKRegressor, Polynomial, load
from parkrr.errors import ParameterError

rng = np.random.default_rng(0)
X = rng.normal(size=(400, 4))
Y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=400)
QUIET = {"random_state": 0, "progress": False}
STEPS = ["sample search", "metric descent", "kernel comparison", "comparison on cells", "chosen"]


@pytest.fixture(autouse=True)
def python_handles_interrupts():
    """As in a terminal: a process in the background of a shell ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def events():
    collected = []
    ParKRegressor(callbacks=[collected.append], **QUIET).fit(X, Y)
    return collected


@pytest.fixture(scope="module")
def fitted():
    return ParKRegressor(**QUIET).fit(X, Y)


def test_callbacks_hear_of_every_step(events):
    assert set(STEPS) <= {event.step for event in events}
    assert events[-1].step == "chosen"


def test_seconds_and_shares_of_events_rise_to_the_end(events):
    assert [event.seconds for event in events] == sorted(event.seconds for event in events)
    assert [event.share for event in events] == sorted(event.share for event in events)
    assert events[-1].share == 1.0


def test_errors_of_events_are_shares_of_the_variance(events):
    assert all(0 < event.error < 2 for event in events)


def test_callbacks_change_nothing_of_the_model(events, fitted):
    heard = ParKRegressor(callbacks=[events.append], **QUIET).fit(X, Y)
    np.testing.assert_array_equal(heard.predict(X), fitted.predict(X))


def stop_at(step):
    return lambda event: event.step == step


@pytest.mark.parametrize("step", STEPS[:2])
def test_a_callback_that_returns_true_ends_the_search_with_the_best_so_far(step, fitted):
    model = ParKRegressor(callbacks=[stop_at(step)], **QUIET).fit(X, Y)
    [stop] = [each for each in model.chosen_.tried if each["step"] == "callback"]
    assert stop["stopped"].startswith(step)
    assert len(model.chosen_.tried) < len(fitted.chosen_.tried)
    assert model.score(X, Y) > 0.8


def interrupt_at(step):
    def interrupt(event):
        if event.step == step:
            signal.raise_signal(signal.SIGINT)

    return interrupt


def test_ctrl_c_while_choosing_ends_with_a_model(capsys):
    model = ParKRegressor(callbacks=[interrupt_at("sample search")], **QUIET).fit(X, Y)
    assert "Ctrl-C" in {each["step"] for each in model.chosen_.tried}
    assert model.score(X, Y) > 0.8
    assert "fitting the best model so far" in capsys.readouterr().err


def test_ctrl_c_twice_ends_the_fit():
    at_first, later = interrupt_at("sample search"), interrupt_at("comparison on cells")
    with pytest.raises(KeyboardInterrupt):
        ParKRegressor(callbacks=[at_first, later], **QUIET).fit(X, Y)


@pytest.mark.parametrize("callbacks", [3, [3], "abc"])
def test_callbacks_that_are_none_are_refused(callbacks):
    with pytest.raises(ParameterError, match="callbacks must be a list of functions"):
        ParKRegressor(callbacks=callbacks, **QUIET).fit(X, Y)


def test_a_warm_start_chooses_nothing_and_gives_the_same_model(fitted):
    model = clone(fitted).set_params(warm_start=True).fit(X, Y)
    first = model.predict(X)
    assert len(model.chosen_.tried) > 10
    model.fit(X, Y)
    np.testing.assert_allclose(model.predict(X), first, atol=1e-9)
    assert {each["step"] for each in model.chosen_.tried}.isdisjoint(STEPS)


def test_choices_of_one_fit_are_the_start_of_every_fold(fitted):
    warm = ParKRegressor(warm_start=fitted.chosen_, **QUIET)
    assert cross_val_score(warm, X, Y, cv=3).min() > 0.8
    folds = clone(warm).fit(X[:300], Y[:300])
    assert folds.chosen_.params["kernel"] == fitted.chosen_.params["kernel"]
    assert folds.chosen_.params["penalty"] == fitted.chosen_.params["penalty"]


def test_what_is_given_stays_in_a_warm_start(fitted):
    warm = ParKRegressor(warm_start=fitted.chosen_, penalty=0.125, **QUIET).fit(X, Y)
    assert warm.chosen_.params["penalty"] == 0.125
    assert warm.chosen_.params["kernel"] == fitted.chosen_.params["kernel"]


def test_a_kernel_of_another_family_is_chosen_again(fitted):
    other = ParKRegressor(warm_start=fitted.chosen_, kernel="polynomial", **QUIET).fit(X, Y)
    assert isinstance(other.chosen_.params["kernel"], Polynomial)


def test_a_kernel_of_another_smoothness_is_chosen_again(fitted):
    smooth = fitted.chosen_.params | {"kernel": Matern(2.0, nu=2.5)}
    earlier = fitted.chosen_._replace(params=smooth)
    other = ParKRegressor(warm_start=earlier, kernel="matern", **QUIET).fit(X, Y)
    assert other.chosen_.params["kernel"].nu == 1.5


def test_choices_hold_neither_callbacks_nor_earlier_choices(fitted):
    warm = ParKRegressor(warm_start=fitted.chosen_, callbacks=[print], **QUIET).fit(X, Y)
    assert warm.chosen_.params["warm_start"] is False
    assert warm.chosen_.params["callbacks"] is None


def test_a_warm_start_with_other_features_chooses_again(fitted):
    other = ParKRegressor(warm_start=fitted.chosen_, **QUIET).fit(X[:, :3], Y)
    assert "sample search" in {each["step"] for each in other.chosen_.tried}


def test_a_warm_start_from_something_else_is_refused():
    with pytest.raises(ParameterError, match="warm_start must be True, False or the chosen_"):
        ParKRegressor(warm_start="yes", **QUIET).fit(X, Y)


def test_a_classifier_starts_warm_too():
    model = ParKClassifier(warm_start=True, **QUIET).fit(X, Y > 0)
    assert model.fit(X, Y > 0).score(X, Y > 0) > 0.9


def test_a_model_file_has_neither_callbacks_nor_a_warm_start(fitted, tmp_path):
    model = ParKRegressor(callbacks=[print], warm_start=fitted.chosen_, **QUIET)
    model.set_params(callbacks=[lambda event: None]).fit(X, Y).save(tmp_path / "m.park")
    loaded = load(tmp_path / "m.park")
    assert (loaded.callbacks, loaded.warm_start) == (None, False)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_an_unknown_effort_is_refused():
    with pytest.raises(ParameterError, match="effort must be one of"):
        ParKRegressor(effort="lazy", **QUIET).fit(X, Y)


def test_less_effort_takes_fewer_steps(fitted):
    fast = ParKRegressor(effort="fast", **QUIET).fit(X, Y)
    reached = [each["metric"] for each in fast.chosen_.tried if each["step"] == "metric descent"]
    assert "scores, diagonal matrix, step 18" in reached
    assert fast.score(X, Y) > 0.8


def test_every_row_is_a_centre_however_little_it_weighs():
    weights = np.where(X[:, 0] > 0, 3.0, 1.0)
    named = {"kernel": "gaussian", "metric": "standard", "penalty": 1e-4, "blend": 1, "coarse": 0}
    model = ParKRegressor(n_cells=4, **named, **QUIET).fit(X, Y, sample_weight=weights)
    assert [cell.centers for cell in model.report_] == [cell.rows for cell in model.report_]
