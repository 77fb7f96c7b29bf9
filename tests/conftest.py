import pytest
from pyarrow import fs

import real_data

# Files whose tests take seconds each. `pytest -m "not slow"` skips them and takes three minutes.
SLOW = (
    "cli/test_cli.py",
    "data/test_csv_dialects.py",
    "data/test_storage.py",
    "estimators/test_autogluon.py",
    "estimators/test_choosing.py",
    "estimators/test_concurrency.py",
    "estimators/test_frame_properties.py",
    "estimators/test_fuzz.py",
    "estimators/test_kernel_names.py",
    "estimators/test_messages.py",
    "estimators/test_mlflow.py",
    "estimators/test_properties.py",
    "estimators/test_sklearn.py",
    "out_of_core/test_lease.py",
    "estimators/test_target_encoding.py",
    "out_of_core/test_rounding.py",
    "estimators/test_validation_rows.py",
    "package/test_golden.py",
    "package/test_readme.py",
    "park/test_batches.py",
    "parkrr/estimators/base.py",
    "parkrr/estimators/classifier.py",
    "parkrr/estimators/regressor.py",
    "planning/test_plan.py",
    "runtime/test_devices.py",
    "tuning/test_pipeline.py",
)
# Files that count on the memory or the cores of the machine, so that nothing may run beside them.
ALONE = (
    "estimators/test_data.py",
    "estimators/test_service.py",
    "out_of_core/test_fit_from_disk.py",
    "out_of_core/test_ray.py",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.as_posix().endswith(SLOW + ALONE):
            item.add_marker(pytest.mark.slow)
        if item.path.as_posix().endswith(ALONE):
            item.add_marker(pytest.mark.alone)


@pytest.fixture
def dataset():
    """The loader of real data, where there is any."""
    if real_data.folder() is None:
        pytest.skip("set PARKRR_DATA to the folder of the benchmark datasets")
    return real_data.load


@pytest.fixture(scope="session")
def s3():
    """URLs of folders in a bucket, on a server on loopback that speaks the protocol."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    options = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    there, _ = fs.FileSystem.from_uri(f"s3://a:hush@rows?{options}&allow_bucket_creation=true")
    there.create_dir("rows")
    yield lambda folder: f"s3://a:hush@rows/{folder}?{options}"
    server.stop()
