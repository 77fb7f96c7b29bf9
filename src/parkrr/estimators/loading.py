"""Models from files."""

from pathlib import Path

from parkrr.estimators.classifier import ParKClassifier
from parkrr.estimators.regressor import ParKRegressor
from parkrr.persistence import load_estimator


def load(path: str | Path) -> ParKRegressor | ParKClassifier:
    """The model that was saved in a file or at a URL, ready to predict.

    Nothing of the file is run. Centres and weights stay in it and are mapped, so that processes
    with the same model share one copy; replace a file that is in use, do not write into it. A file
    that is damaged or made up is refused with a ModelFileError that says what is wrong.

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
    return load_estimator(path, {kind._kind: kind for kind in (ParKRegressor, ParKClassifier)})
