"""Models from files."""

from pathlib import Path

from parkrr.classifier import ParKClassifier
from parkrr.errors import ModelFileError
from parkrr.modelfile import params_of, read_model
from parkrr.regressor import ParKRegressor


def load(path: str | Path) -> ParKRegressor | ParKClassifier:
    """The model that was saved in a file, ready to predict.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from parkrr import ParKRegressor, load
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> path = f"{tempfile.mkdtemp()}/sine.park"
    >>> ParKRegressor(random_state=0).fit(X, np.sin(X[:, 0])).save(path)
    >>> load(path).predict([[1.0]]).round(3)
    array([0.841])
    """
    saved = read_model(Path(path))
    facts = saved.facts
    kinds = {"ParKRegressor": ParKRegressor, "ParKClassifier": ParKClassifier}
    if facts.get("estimator") not in kinds:
        raise ModelFileError(f"{str(path)!r} holds no estimator, but part of a fit")
    estimator = kinds[facts["estimator"]](**params_of(facts["params"], saved.model.metric))
    estimator._restore(saved)
    return estimator
