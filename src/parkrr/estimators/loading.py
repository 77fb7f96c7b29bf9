"""Models from files."""

from pathlib import Path

from parkrr.data import placed
from parkrr.errors import ModelFileError
from parkrr.estimators.classifier import ParKClassifier
from parkrr.estimators.regressor import ParKRegressor
from parkrr.persistence import axes, check_estimator, damaged, params_of, read_model, sound

KINDS: tuple[type[ParKRegressor] | type[ParKClassifier], ...] = (ParKRegressor, ParKClassifier)


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
    folder, file = placed(path)
    with folder.local(file) as place:
        return estimator_of(place)


def estimator_of(path: Path) -> ParKRegressor | ParKClassifier:
    """The model in a file of this machine; a copy that is gone later stays mapped."""
    saved = read_model(path, shared=True)
    name, kinds = saved.facts.get("estimator"), {kind._kind: kind for kind in KINDS}
    if not isinstance(name, str) or name not in kinds:
        raise ModelFileError(f"{str(path)!r} holds no estimator, but part of a fit")
    with sound(damaged(path)):
        check_estimator(saved.facts, saved.more, axes(saved.model), kinds[name]().get_params())
        estimator = kinds[name](**params_of(saved.facts["params"], saved.model.metric))
        estimator._restore(saved)
    return estimator
