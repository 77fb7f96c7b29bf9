"""Models from files."""

from pathlib import Path

from parkrr.estimators.classifier import ParKClassifier
from parkrr.estimators.regressor import ParKRegressor
from parkrr.persistence import load_estimator


def load(path: str | Path) -> ParKRegressor | ParKClassifier:
    """Load a model that :meth:`ParKRegressor.save` or :meth:`ParKClassifier.save` wrote.

    Nothing in the file is executed. Centres and weights stay in the file and are mapped into
    memory, so that several processes with the same model share one copy. Replace a file that is
    in use; do not write into it.

    Parameters
    ----------
    path : str or Path
        File, or URL such as "s3://bucket/minutes.park".

    Returns
    -------
    ParKRegressor or ParKClassifier
        The fitted estimator.

    Raises
    ------
    ModelFileError
        If the file is damaged, or is no model file of this version. The message names what is
        wrong.

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
