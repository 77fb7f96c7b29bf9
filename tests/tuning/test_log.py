"""What was tried is recorded with its error, and steps with their seconds."""

import pytest
import torch

from parkrr.kernels import FeatureMap, Gaussian
from parkrr.park import NystromModel
from parkrr.tuning.log import Candidate, Chosen, TuningLog
from reference import kernel_matrix

CENTERS = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
WEIGHTS = torch.tensor([[0.5], [-2.0]], dtype=torch.float64)
CANDIDATE = Candidate(
    kernel=Gaussian(1.5),
    metric=FeatureMap(torch.ones(2), torch.full((2,), 2.0)),
    penalty=1e-3,
    error=0.25,
    map_name="standard",
    model=NystromModel(Gaussian(1.5), CENTERS, WEIGHTS),
)


def test_a_note_holds_the_step_what_it_was_and_the_error():
    log = TuningLog()
    log.note("coarse comparison", 0.5, level="cells")
    assert log.tried == [{"step": "coarse comparison", "level": "cells", "error": 0.5}]


def test_the_note_of_a_candidate_names_kernel_map_and_penalty():
    log = TuningLog()
    log.note_candidate("sample search", CANDIDATE, precision="torch.float32")
    assert log.tried == [
        {
            "step": "sample search",
            "kernel": "Gaussian(lengthscale=1.5)",
            "metric": "standard",
            "penalty": 1e-3,
            "precision": "torch.float32",
            "error": 0.25,
        }
    ]


def test_a_finished_step_has_the_seconds_since_the_one_before():
    log = TuningLog()
    begun = log.started
    log.finish_step("sample search")
    log.finish_step("metric search")
    assert list(log.seconds) == ["sample search", "metric search"]
    assert sum(log.seconds.values()) == pytest.approx(log.started - begun)


def test_a_candidate_predicts_behind_its_map():
    X = torch.tensor([[1.0, 1.0], [3.0, 0.0]], dtype=torch.float64)
    mapped = 2 * (X - 1)
    expected = kernel_matrix(Gaussian(1.5), mapped.numpy(), CENTERS.numpy()) @ WEIGHTS.numpy()
    torch.testing.assert_close(CANDIDATE.predict(X), torch.from_numpy(expected))


def test_what_was_chosen_prints_in_a_screenful():
    tried = [{"step": "sample search", "kernel": "x" * 200, "error": k / 7} for k in range(1, 400)]
    params = {"kernel": Gaussian(2.123456789), "metric": CANDIDATE.metric, "penalty": 1e-3}
    lines = repr(Chosen(params, tried, {}, "constant")).splitlines()
    assert lines == [
        "kernel               Gaussian(lengthscale=2.123)",
        "penalty              0.001",
        "metric               standard features",
        "uncertainty          constant",
        "",
        "Errors compare within a step: between steps rows and baselines differ.",
        "step                 compared  least error",
        "sample search             399       0.1429",
    ]
