"""Models are what they were: see golden.py."""

import pytest

import golden


@pytest.mark.parametrize("name", golden.MODELS)
def test_model_equals_its_golden_record(name):
    if "ray" in name:
        pytest.importorskip("ray")
    verdict = golden.judged(name, golden.read_record())
    assert verdict.good, verdict.text
