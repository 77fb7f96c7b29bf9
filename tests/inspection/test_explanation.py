"""Explanations of predictions, compared with brute force and with what they claim to be."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import reference
from parkrr import Coarse, FeatureMap, ParKClassifier, ParKRegressor
from parkrr.errors import ParameterError
from parkrr.inspection import explain, neighbors, partial_dependence, shapley_values
from parkrr.inspection.column_values import column_slices, typical_row, unmap_rows
from parkrr.kernels import (
    Gaussian,
    Linear,
    Matern,
    add_normal_scores,
    measure_features,
    standardize_features,
)
from parkrr.partition import Blend, Regions
from plain import PLAIN

ONE_CELL = {**PLAIN, "penalty": 1e-4, "n_cells": 1, "precision": "float64", "random_state": 0}
BLENDED = {**ONE_CELL, "n_cells": 5, "blend": Blend(3, 2.0), "balance": False}


def waves(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, -1] + 0.1 * rng.normal(size=n)


def frame(n, seed=0):
    """Numbers with missing values, a boolean, a date, few and many categories."""
    rng = np.random.default_rng(seed)
    size, kind = rng.normal(size=n), rng.choice(["a", "b", "c"], n, p=[0.2, 0.5, 0.3])
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 600, n), "D")
    street = rng.choice([f"street {k}" for k in range(40)], n)
    y = size * (kind == "a") + 2.0 * (kind == "b") + 0.1 * rng.normal(size=n)
    columns = {"size": np.where(rng.uniform(size=n) < 0.1, np.nan, size), "kind": kind}
    columns |= {"garden": rng.uniform(size=n) < 0.3, "day": day, "street": street}
    return pd.DataFrame(columns), y


def value_of(model, x, background):
    """v(S): the mean prediction of background rows whose features in S are those of x.

    Rows are numbers of the encoder; cells, their shares and no limits are those of x.
    """
    inner, slices = model.model_, column_slices(model.columns_)
    cells = inner.cell_shares(inner.map_rows(torch.from_numpy(x[None])))

    def value(S):
        rows = background.copy()
        for k in S:
            rows[:, slices[k]] = x[slices[k]]
        Z = inner.map_rows(torch.from_numpy(rows)).double().numpy()
        total = np.full(len(rows), float(inner.intercept[0]))
        for q, share in zip(cells.cell.tolist(), cells.share.tolist(), strict=True):
            total += share * sum_of_centers(inner.kernel, inner.centers[q], inner.weights[q], Z)
        for coarse in filter(None, [inner.coarse]):
            total += sum_of_centers(coarse.kernel, coarse.centers, coarse.weights, Z)
        return total.mean()

    return value


def sum_of_centers(kernel, centers, weights, Z):
    squares = ((Z[:, None] - centers.double().numpy()) ** 2).sum(2)
    return np.exp(-squares / (2 * kernel.lengthscale**2)) @ weights.double().numpy()[:, 0]


def brute_force(model, X, background):
    """Shapley values of rows by all coalitions of their features."""
    rows, others = (model._rows(each).double().numpy() for each in (X, background))
    d = model.n_features_in_
    return np.stack([reference.brute_force_shapley(value_of(model, x, others), d) for x in rows])


# Shapley values.


@pytest.mark.parametrize("d", [3, 8, 12])
def test_shapley_values_equal_brute_force_over_all_coalitions(d):
    X, y = waves(120, d)
    model = ParKRegressor(**{**ONE_CELL, "kernel": Gaussian(1.5), "metric": "standard"}).fit(X, y)
    shapley = shapley_values(model, X[:2], background=X[-3:])
    np.testing.assert_allclose(shapley.values, brute_force(model, X[:2], X[-3:]), atol=1e-8)


def test_shapley_values_of_blended_cells_and_a_coarse_level_equal_brute_force():
    X, y = waves(500, 4)
    both = {**BLENDED, "coarse": Coarse(40), "kernel": Gaussian(1.2)}
    model = ParKRegressor(**both).fit(X, y)
    shares = model.model_.cell_shares(model.model_.map_rows(torch.from_numpy(X[:6])))
    assert len(shares.row) > 6
    shapley = shapley_values(model, X[:6], background=X[-4:])
    np.testing.assert_allclose(shapley.values, brute_force(model, X[:6], X[-4:]), atol=1e-8)


def test_a_feature_and_its_normal_score_count_as_one():
    X, y = waves(200, 3)
    metric = add_normal_scores(standardize_features(torch.from_numpy(X)), torch.from_numpy(X))
    metric = metric.with_matrix(torch.tensor([1.0, 0.5, 0.2, 0.3, 1.0, 0.7]))
    model = ParKRegressor(**{**ONE_CELL, "metric": metric}).fit(X, y)
    shapley = shapley_values(model, X[:3], background=X[-2:])
    assert shapley.values.shape == (3, 3)
    np.testing.assert_allclose(shapley.values, brute_force(model, X[:3], X[-2:]), atol=1e-8)


def test_a_matrix_that_leaves_features_out_mixes_none():
    X, y = waves(200, 3)
    origin, scale = measure_features(torch.from_numpy(X))
    metric = FeatureMap(origin, scale, matrix=torch.eye(3, dtype=torch.float64)[:, [2, 0]])
    model = ParKRegressor(**{**ONE_CELL, "metric": metric}).fit(X, y)
    shapley = shapley_values(model, X[:3], background=X[-2:])
    np.testing.assert_allclose(shapley.values, brute_force(model, X[:3], X[-2:]), atol=1e-8)
    assert (shapley.values[:, 1] == 0).all()


def test_the_numbers_of_a_category_count_as_one_feature():
    X, y = frame(400)
    model = ParKRegressor(**{**ONE_CELL, "kernel": Gaussian(2.0), "metric": "standard"}).fit(X, y)
    shapley = shapley_values(model, X[:4], background=X[-5:])
    assert shapley.features == list(X.columns)
    np.testing.assert_allclose(shapley.values, brute_force(model, X[:4], X[-5:]), atol=1e-8)


def test_shapley_values_add_up_to_the_prediction_less_that_of_the_background():
    X, y = waves(300, 5)
    free = {**ONE_CELL, "kernel": Gaussian(1.5), "extrapolation": "free"}
    model = ParKRegressor(**free).fit(X, y)
    shapley = shapley_values(model, X[:20], background=X[-6:])
    np.testing.assert_allclose(shapley.base, model.predict(X[-6:]).mean(), rtol=1e-8)
    np.testing.assert_allclose(shapley.predictions, model.predict(X[:20]), rtol=1e-8)
    total = shapley.base + shapley.values.sum(1)
    np.testing.assert_allclose(total, shapley.predictions, rtol=1e-12)


def test_by_default_a_row_is_compared_with_the_medians_of_its_own_cell():
    X, y = waves(400, 3)
    model = ParKRegressor(**{**ONE_CELL, "n_cells": 3, "metric": "standard"}).fit(X, y)
    inner = model.model_
    cells = inner.route(torch.from_numpy(X[:20]))
    assert len(set(cells.tolist())) == 3
    for i, q in enumerate(cells.tolist()):
        typical = unmap_rows(inner.metric, inner.centers[q]).median(0).values[None].numpy()
        wanted = shapley_values(model, X[i : i + 1], background=typical)
        one = shapley_values(model, X[i : i + 1])
        np.testing.assert_allclose(one.values, wanted.values, atol=1e-9)
        np.testing.assert_allclose(one.base, wanted.base, atol=1e-9)


def test_by_default_a_category_is_compared_with_the_most_frequent_one():
    X, y = frame(400)
    X = X.drop(columns="street")  # whose codes in the fit depend on the fold
    model = ParKRegressor(**{**ONE_CELL, "kernel": Gaussian(2.0), "metric": "standard"}).fit(X, y)
    values = shapley_values(model, X[:50]).values
    frequent = X["kind"][:50] == "b"
    np.testing.assert_allclose(values[frequent, 1], 0, atol=1e-9)
    assert (np.abs(values[~frequent, 1]) > 0.1).all()


def test_far_rows_whose_factors_underflow_have_finite_shapley_values():
    X, y = waves(100, 4)
    model = ParKRegressor(**{**ONE_CELL, "kernel": Gaussian(0.01)}).fit(X, y)
    far = np.array([[1e6, 0.0, -1e6, 3.0]])
    shapley = shapley_values(model, far, background=X[:2])
    assert np.isfinite(shapley.values).all()
    np.testing.assert_allclose(shapley.predictions, float(model.model_.intercept), atol=1e-8)


def test_shapley_values_of_a_classifier_are_those_of_the_score_of_a_class():
    X, y = waves(200, 3)
    labels = np.digitize(y, [-0.5, 0.5])
    model = ParKClassifier(**{**ONE_CELL, "kernel": Gaussian(1.5)}).fit(X, labels)
    scores = model.model_.predict(torch.from_numpy(X[:5])).numpy()
    for target in range(3):
        shapley = shapley_values(model, X[:5], target=target)
        np.testing.assert_allclose(shapley.predictions, scores[:, target], atol=1e-8)


def test_other_kernels_are_refused_with_the_way_out():
    X, y = waves(100, 2)
    model = ParKRegressor(**{**ONE_CELL, "kernel": Matern(1.0)}).fit(X, y)
    with pytest.raises(ParameterError, match=r"Gaussian kernel.*Matern\(.*kernel='gaussian'"):
        shapley_values(model, X)


def test_a_metric_that_mixes_features_is_refused_with_the_way_out():
    X, y = waves(100, 2)
    origin, scale = measure_features(torch.from_numpy(X))
    turned = torch.tensor([[0.8, -0.6], [0.6, 0.8]], dtype=torch.float64)
    model = ParKRegressor(**{**ONE_CELL, "metric": FeatureMap(origin, scale, matrix=turned)})
    with pytest.raises(ParameterError, match=r"mixes several into 2 of 2 .*metric='standard'"):
        shapley_values(model.fit(X, y), X)


def test_a_target_without_shapley_values_is_named():
    X, y = waves(50, 2)
    with pytest.raises(ParameterError, match="target must be a number from 0 to 0, got 1"):
        shapley_values(ParKRegressor(**ONE_CELL).fit(X, y), X, target=1)


def test_a_model_that_is_not_fitted_has_no_shapley_values():
    with pytest.raises(ParameterError, match="model must be fitted"):
        shapley_values(ParKRegressor(), [[0.0]])


# Slopes and contributions.


def differences(model, X, step=1e-5):
    """Central differences of predictions, one feature at a time."""
    columns = []
    for k in range(X.shape[1]):
        change = np.zeros(X.shape[1])
        change[k] = step
        columns.append((model.predict(X + change) - model.predict(X - change)) / (2 * step))
    return np.stack(columns, 1)


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Matern(2.0, nu=2.5)], ids=repr)
def test_slopes_equal_finite_differences_of_blended_cells(kernel):
    X, y = waves(600, 3)
    both = {**BLENDED, "kernel": kernel, "metric": "standard", "coarse": Coarse(40)}
    model = ParKRegressor(**{**both, "extrapolation": "free"}).fit(X, y)
    np.testing.assert_allclose(explain(model, X[:80]).slopes, differences(model, X[:80]), atol=1e-5)


def test_slopes_of_a_logarithmic_link_are_those_of_predictions():
    X, y = waves(600, 3)
    known = {**BLENDED, "kernel": Gaussian(1.0), "coarse": 0, "extrapolation": "free"}
    model = ParKRegressor(**known, loss="gamma").fit(X, np.exp(y))
    slopes = differences(model, X[:80])
    np.testing.assert_allclose(explain(model, X[:80]).slopes, slopes, atol=1e-5)


def test_slopes_equal_finite_differences_across_regions():
    X, y = waves(600, 2)
    cells = {**BLENDED, "n_cells": 8, "kernel": Gaussian(1.0), "extrapolation": "free"}
    model = ParKRegressor(**cells).fit(X, y)
    inner = model.model_
    parts = torch.split(inner.centroids, [4, 3, 1])
    upper = torch.stack([part.mean(0) for part in parts])
    regions = Regions(upper, torch.tensor([4, 3, 1]), torch.tensor([1.0, 1.0, 1.0]))
    model.model_ = replace(inner, regions=regions, blend=Blend(2, 2.0))
    np.testing.assert_allclose(explain(model, X[:80]).slopes, differences(model, X[:80]), atol=1e-5)


def test_slopes_equal_finite_differences_through_scores_and_a_matrix():
    X, y = waves(300, 2)
    metric = add_normal_scores(standardize_features(torch.from_numpy(X)), torch.from_numpy(X))
    mixed = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 3)))
    model = ParKRegressor(**{**ONE_CELL, "metric": metric.with_matrix(mixed)}).fit(X, y)
    inside, _ = waves(40, 2, seed=1)
    np.testing.assert_allclose(
        explain(model, inside).slopes, differences(model, inside, 1e-7), atol=1e-4
    )


def test_slopes_are_zero_where_predictions_are_held_at_their_limit():
    X = np.linspace(-1, 1, 200)[:, None]
    model = ParKRegressor(**{**ONE_CELL, "kernel": Linear()}).fit(X, X[:, 0])
    assert np.isnan(explain(model, X[:3]).slopes).all()  # a kernel without a gradient here
    model = ParKRegressor(**{**ONE_CELL, "kernel": Gaussian(0.5), "penalty": 1e-8})
    model.fit(X, np.exp(3 * X[:, 0]))
    outside = np.array([[1.1], [0.0]])
    assert model.predict(outside)[0] == float(model.model_.limits[1, 0, 0])
    slopes = explain(model, outside).slopes[:, 0]
    assert slopes[0] == 0
    assert slopes[1] == pytest.approx(3, rel=1e-2)


def test_a_contribution_is_the_change_by_the_typical_value():
    X, y = waves(301, 3)
    model = ParKRegressor(**{**BLENDED, "kernel": Gaussian(1.0)}).fit(X, y)
    explanation = explain(model, X[:30])
    np.testing.assert_allclose(explanation.typical, np.median(X, axis=0))
    np.testing.assert_array_equal(explanation.predictions, model.predict(X[:30]))
    for k in range(3):
        changed = X[:30].copy()
        changed[:, k] = np.median(X[:, k])
        wanted = model.predict(X[:30]) - model.predict(changed)
        np.testing.assert_allclose(explanation.contributions[:, k], wanted, atol=1e-12)
    assert explanation.base == pytest.approx(model.predict(np.median(X, axis=0)[None])[0])


def test_contributions_of_a_frame_are_those_of_its_columns():
    X, y = frame(600)
    model = ParKRegressor(**{**ONE_CELL, "kernel": Gaussian(2.0), "metric": "standard"}).fit(X, y)
    explanation = explain(model, X[:20])
    assert explanation.features == list(X.columns)
    typical = dict(zip(explanation.features, explanation.typical, strict=True))
    assert typical["kind"] == "b"
    assert typical["garden"] is False
    assert typical["size"] == pytest.approx(X["size"].median())
    assert typical["day"][:10] == str(X["day"].median())[:10]
    assert typical["street"] == X["street"].mode()[0]
    changed = X[:20].assign(kind="b")
    wanted = model.predict(X[:20]) - model.predict(changed)
    np.testing.assert_allclose(explanation.contributions[:, 1], wanted, atol=1e-10)


def test_slopes_are_known_for_numbers_that_are_not_missing_alone():
    X, y = frame(600)
    model = ParKRegressor(**{**ONE_CELL, "kernel": Gaussian(2.0), "metric": "standard"}).fit(X, y)
    slopes = explain(model, X[:50]).slopes
    np.testing.assert_array_equal(np.isnan(slopes[:, 0]), X["size"][:50].isna())
    assert np.isnan(slopes[:, 1:]).all()


def test_a_target_that_is_not_there_is_refused():
    X, y = waves(50, 2)
    with pytest.raises(ParameterError, match="target must be a number from 0 to 1, got 2"):
        explain(ParKRegressor(**ONE_CELL).fit(X, np.stack([y, -y], 1)), X, target=2)


# Neighbours.


def test_the_weights_of_all_neighbours_add_up_to_the_prediction():
    X, y = waves(400, 3)
    both = {**BLENDED, "coarse": Coarse(40), "extrapolation": "free"}
    model = ParKRegressor(**{**both, "kernel": Gaussian(1.0)}).fit(X, y)
    listed = neighbors(model, X[:5], 10_000)
    totals = np.bincount([one["row"] for one in listed], [one["weight"] for one in listed])
    np.testing.assert_allclose(totals + float(model.model_.intercept), model.predict(X[:5]))
    assert {one["cell"] for one in listed} >= {None, 0}


def test_neighbours_are_training_rows_sorted_by_size_of_their_weight():
    X, y = waves(300, 2)
    model = ParKRegressor(**{**ONE_CELL, "metric": "standard"}).fit(X, y)
    listed = neighbors(model, X[:2], 4, sort_by="weight")
    assert [one["row"] for one in listed] == [0] * 4 + [1] * 4
    sizes = np.abs([one["weight"] for one in listed]).reshape(2, 4)
    assert (np.diff(sizes, axis=1) <= 0).all()
    rows = np.array([list(one["values"].values()) for one in listed])
    assert all(np.abs(X - row).max(1).min() < 1e-9 for row in rows)
    np.testing.assert_allclose([one["prediction"] for one in listed], model.predict(rows))


def test_the_most_similar_neighbour_of_a_centre_is_itself():
    X, y = frame(300)
    X = X.drop(columns="street")  # whose code in the fit does not use the row's own target
    model = ParKRegressor(**{**ONE_CELL, "kernel": Gaussian(2.0), "metric": "standard"}).fit(X, y)
    own, second = neighbors(model, X[8:9], 2)
    assert own["similarity"] == pytest.approx(1)
    assert second["similarity"] < 1
    assert own["values"]["size"] == pytest.approx(X["size"][8])
    assert own["values"]["kind"] == X["kind"][8]
    assert own["values"]["garden"] == X["garden"][8]
    assert own["values"]["day"][:10] == str(X["day"][8])[:10]


def test_values_that_the_metric_does_not_keep_are_none():
    X, y = waves(200, 3)
    origin, scale = measure_features(torch.from_numpy(X))
    metric = FeatureMap(origin, scale, matrix=torch.tensor([1.0, 0.0, 2.0]))
    model = ParKRegressor(**{**ONE_CELL, "metric": metric}).fit(X, y)
    values = neighbors(model, X[:1], 1)[0]["values"]
    assert values["x1"] is None
    assert np.abs(X[:, [0, 2]] - [values["x0"], values["x2"]]).max(1).min() < 1e-9


def test_values_come_from_normal_scores_if_the_feature_has_no_weight():
    X = torch.from_numpy(waves(200, 2)[0])
    metric = add_normal_scores(standardize_features(X), X)
    metric = metric.with_matrix(torch.tensor([0.0, 1.0, 1.0, 0.0]))
    recovered = unmap_rows(metric, metric(X, torch.float64))
    torch.testing.assert_close(recovered, X)


def test_a_matrix_of_full_rank_gives_rows_back_and_others_lose_them():
    X = torch.from_numpy(waves(50, 3)[0])
    base = standardize_features(X)
    full = base.with_matrix(torch.from_numpy(np.random.default_rng(0).normal(size=(3, 3))))
    torch.testing.assert_close(unmap_rows(full, full(X, torch.float64)), X)
    flat = base.with_matrix(full.matrix[:, :2])
    assert unmap_rows(flat, flat(X, torch.float64)).isnan().all()


def test_how_neighbours_are_sorted_is_one_of_two():
    X, y = waves(50, 2)
    with pytest.raises(ParameterError, match="sort_by must be one of"):
        neighbors(ParKRegressor(**ONE_CELL).fit(X, y), X, sort_by="distance")


# Partial dependence.


def test_partial_dependence_is_the_mean_prediction_with_a_feature_set():
    X, y = waves(200, 3)
    model = ParKRegressor(**ONE_CELL).fit(X, y)
    dependence = partial_dependence(model, "x1", X, grid_resolution=7)
    [grid] = dependence.grids
    assert len(grid.values) == 7
    assert set(grid.values) <= set(X[:, 1])
    for value, average in zip(grid.values, dependence.average, strict=True):
        changed = X.copy()
        changed[:, 1] = value
        assert average == pytest.approx(model.predict(changed).mean())


def test_two_features_interact_as_much_as_their_product():
    X, _ = waves(400, 3)
    model = ParKRegressor(**{**ONE_CELL, "kernel": Gaussian(2.0), "penalty": 1e-8})
    model.fit(X, X[:, 0] + X[:, 1] * X[:, 2])
    apart = partial_dependence(model, (0, 1), X, grid_resolution=6)
    joint = partial_dependence(model, ("x1", "x2"), X, grid_resolution=6)
    assert apart.average.shape == (6, 6)
    assert apart.interaction < 0.05
    assert joint.interaction > 0.9


def test_the_grid_of_a_category_has_its_values():
    X, y = frame(300)
    model = ParKRegressor(**{**ONE_CELL, "kernel": Gaussian(2.0), "metric": "standard"}).fit(X, y)
    dependence = partial_dependence(model, "kind", X)
    by_name = dict(zip(dependence.grids[0].values, dependence.average, strict=True))
    for kind in ("a", "b", "c"):
        wanted = model.predict(X.assign(kind=kind)).mean()
        assert by_name[kind] == pytest.approx(wanted)
    assert partial_dependence(model, "street", X).grids[0].values[-1].startswith("street ")


def test_a_feature_that_is_not_there_is_refused_with_the_one_that_was_meant():
    X, y = frame(300)
    model = ParKRegressor(**ONE_CELL).fit(X, y)
    with pytest.raises(ParameterError, match=r"'siz'.*'size'"):
        partial_dependence(model, "siz", X)


def test_a_typical_row_of_a_map_without_an_origin_is_that_of_the_centres():
    X, y = waves(101, 2)
    model = ParKRegressor(**{**ONE_CELL, "metric": FeatureMap()}).fit(X, y)
    np.testing.assert_allclose(typical_row(model).numpy(), np.median(X, axis=0))
