import pytest

import datasets


@pytest.fixture
def dataset():
    """The loader of real data, where there is any."""
    if datasets.folder() is None:
        pytest.skip("set PARKRR_DATA to the folder of the benchmark datasets")
    return datasets.load
