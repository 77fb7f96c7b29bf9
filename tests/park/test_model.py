"""Algorithm 2: a model at any rows, in any chunks, prepared or not."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

import reference
from parkrr.data import Block
from parkrr.errors import NotFiniteError
from parkrr.kernels import Gaussian, Matern, Polynomial
from parkrr.kernels.feature_map import FeatureMap
from parkrr.park import Model, NystromModel
from parkrr.park.model import PreparedCells, Workspace
from parkrr.partition import Blend, Regions


def random(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def model(kernel=None, **changes):
    sizes = (5, 1, 8, 30)
    given = Model(
        kernel=kernel or Gaussian(1.5),
        metric=FeatureMap(torch.ones(3).double(), torch.full((3,), 0.5).double()),
        centroids=random(4, 3),
        centers=[random(m, 3, seed=m) for m in sizes],
        weights=[random(m, 2, seed=m + 1) for m in sizes],
        intercept=torch.tensor([1.0, -2.0]).double(),
    )
    return replace(given, **changes)


def formula(given, X):
    """Eq. (14), with the coarse level and the intercept, entry by entry."""
    Z = 0.5 * (X.numpy() - 1)
    cell_of = reference.rkhs_distances(given.kernel, Z, given.centroids.numpy()).argmin(1)
    out = []
    for z, q in zip(Z, cell_of, strict=True):
        K = reference.kernel_matrix(given.kernel, z[None], given.centers[q].numpy())
        out.append((K @ given.weights[q].numpy())[0])
    out = np.array(out) + given.intercept.numpy()
    if given.coarse is not None:
        K = reference.kernel_matrix(given.coarse.kernel, Z, given.coarse.centers.numpy())
        out = out + K @ given.coarse.weights.numpy()
    return out


COARSE = NystromModel(Gaussian(4.0), random(6, 3, seed=9), random(6, 2, seed=10))


@pytest.mark.parametrize("n", [1, 2, 50, 700])
@pytest.mark.parametrize("coarse", [None, COARSE], ids=["cells", "coarse"])
@pytest.mark.parametrize("kernel", [Gaussian(1.5), Matern(2.0), Polynomial(2, 0.5)], ids=repr)
def test_predictions_equal_the_formula(kernel, coarse, n):
    given, X = model(kernel, coarse=coarse), random(n, 3, seed=1)
    np.testing.assert_allclose(given.predict(X).numpy(), formula(given, X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("blend", [Blend(), Blend(2, 1.0), Blend(9, 3.0)], ids=repr)
def test_one_row_at_a_time_is_all_rows_at_once(blend):
    given, X = model(blend=blend, coarse=COARSE), random(40, 3, seed=1)
    single = torch.cat([given.predict(X[k : k + 1]) for k in range(40)])
    torch.testing.assert_close(single, given.predict(X), rtol=1e-10, atol=1e-10)


def test_a_blend_is_the_sum_of_the_shares_of_cells():
    given, X = model(blend=Blend(2, 2.0)), random(30, 3, seed=1)
    Z = given.map_rows(X)
    row, cell, share = given.cell_shares(Z)
    expected = given.intercept.repeat(30, 1)
    for i, q, s in zip(row.tolist(), cell.tolist(), share.tolist(), strict=True):
        expected[i] += s * (given.kernel(Z[i : i + 1], given.centers[q]) @ given.weights[q])[0]
    torch.testing.assert_close(given.predict(X), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("regions", [False, True], ids=["one level", "regions"])
def test_a_narrower_blend_is_a_model_with_that_width(regions):
    X, widths = random(40, 3, seed=1), torch.tensor([3.0, 2.0]).double()
    upper = Regions(random(2, 3, seed=5), torch.tensor([3, 1]), widths) if regions else None
    given = model(blend=Blend(2, 4.0), regions=upper)
    given.predict(X)  # prepares the partition
    half = replace(upper, widths=widths / 2) if regions else None
    none = replace(upper, widths=0 * widths) if regions else None
    narrow, hard = model(blend=Blend(2, 2.0), regions=half), model(blend=Blend(), regions=none)
    assert torch.equal(given.narrow_blend(0.5).predict(X), narrow.predict(X))
    assert torch.equal(given.narrow_blend(0.0).predict(X), hard.predict(X))
    assert not torch.equal(hard.predict(X), given.predict(X))


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("chunk_bytes", [1, 24 * 100, 2**24])
def test_chunks_do_not_change_predictions(chunk_bytes, n_threads):
    given, X = model(), random(500, 3, seed=1)
    work = lambda rows: given.evaluate(given.map_rows(rows))  # noqa: E731
    found = given.apply_in_chunks(work, X, n_threads, chunk_bytes)
    torch.testing.assert_close(found, given.predict(X), rtol=1e-12, atol=1e-12)


def test_a_cell_in_float64_predicts_beside_cells_in_float32():
    given = model()
    wide = [Z if q == 3 else Z.float() for q, Z in enumerate(given.centers)]
    mixed = replace(given, centers=wide, centroids=given.centroids.float())
    X = random(200, 3, seed=1)
    np.testing.assert_allclose(mixed.predict(X).numpy(), formula(given, X), atol=1e-4)


def test_predictions_that_overflow_are_refused():
    with pytest.raises(NotFiniteError, match="scale the features"):
        model(Polynomial(9)).predict(torch.full((3, 3), 1e150, dtype=torch.float64))


def test_routes_are_nearest_centroids():
    given, X = model(), random(60, 3, seed=1)
    D = reference.rkhs_distances(given.kernel, 0.5 * (X.numpy() - 1), given.centroids.numpy())
    np.testing.assert_array_equal(given.route(X).numpy(), D.argmin(1))


@pytest.mark.parametrize("coarse", [None, COARSE], ids=["cells", "coarse"])
def test_the_residual_is_what_cells_have_to_explain(coarse):
    given, X, Y = model(coarse=coarse), random(50, 3, seed=1), random(50, 2, seed=2)
    mapped, R, w = given.residual(Block(X, Y, torch.ones(50)), scale=4.0)
    without_cells = replace(given, weights=[0 * w for w in given.weights])
    torch.testing.assert_close(mapped, 0.5 * (X - 1))
    torch.testing.assert_close(4.0 * R + without_cells.predict(X), Y)
    assert w.dtype == torch.float64


def test_new_weights_keep_what_is_prepared():
    given, X = model(), random(50, 3, seed=1)
    given.predict(X)
    weights = [*given.weights[:3], 2 * given.weights[3]]
    other = given.replace_weights(weights, [3])
    assert other.cells[3].kernel_block is given.cells[3].kernel_block
    expected = replace(given, weights=weights).predict(X)
    torch.testing.assert_close(other.predict(X), expected, rtol=0, atol=0)


def test_nothing_prepared_is_pickled():
    given, X = model(coarse=COARSE), random(50, 3, seed=1)
    before = len(pickle.dumps(given))
    expected = given.predict(X)
    assert len(pickle.dumps(given)) == before
    again = pickle.loads(pickle.dumps(given))
    torch.testing.assert_close(again.predict(X), expected, rtol=0, atol=0)


def test_a_view_of_a_file_is_pickled_without_the_file():
    together = random(10_000, 3)
    given = model(centers=[together[:5], together[5:6], together[6:14], together[14:44]])
    assert len(pickle.dumps(given)) < together.nbytes / 10


def test_cells_beyond_the_bytes_for_them_are_the_same():
    given = model()
    few = PreparedCells(
        given.kernel, given.centers, given.weights, torch.zeros_like(given.centroids), 500
    )
    for q in (0, 1, 2, 3, 0, 3):
        kernel_block, w = few[q]
        torch.testing.assert_close(kernel_block.fixed, given.cells[q].kernel_block.fixed)
        torch.testing.assert_close(w, given.weights[q])
    assert [cell is not None for cell in few.prepared] == [True, True, False, False]
    assert few[3] is few[3]  # the last one is kept by the thread


def test_a_workspace_is_used_again():
    block, workspace = Gaussian().against(random(5, 3)), Workspace()
    [first], [second] = (workspace.buffers(block, rows) for rows in (7, 3))
    assert first.shape == (7, 5)
    assert second.shape == (3, 5)
    assert first.data_ptr() == second.data_ptr()
