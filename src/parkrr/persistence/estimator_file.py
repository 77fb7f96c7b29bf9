"""A fitted estimator as a model file: its fitted attributes as plain facts and tensors, and back.

Start at :func:`save_estimator` and :func:`load_estimator`. docs/modelfile.md describes the format.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from parkrr.data import TableEncoder, locate_file
from parkrr.errors import ModelFileError, check_one_of
from parkrr.kernels import FeatureMap, Kernel
from parkrr.park import (
    CellReport,
    CellStatistics,
    Coarse,
    Model,
    NystromModel,
)
from parkrr.partition import Blend
from parkrr.persistence.model_file import (
    CANNOT_HOLD,
    SavedModel,
    decode_kernel,
    encode_kernel,
    model_file_errors,
    read_model,
    round_centers,
    select_prefix,
    write_model,
)
from parkrr.persistence.schema import check_estimator
from parkrr.tuning import Chosen
from parkrr.uncertainty import (
    ConformalScores,
    DiagnosticRows,
    Intervals,
    JackknifePlus,
    Posterior,
    calibration_from_dict,
    rows_from_tensors,
    rows_to_tensors,
)

OF_ONE_FIT = ("callbacks", "warm_start")  # parameters that a file does not have
CENTERS_DTYPES = {"float16": torch.float16, "float32": torch.float32}


class SavableEstimator(Protocol):
    """The attributes of a fitted estimator that every file has.

    A regressor also has `intervals_`; a classifier has `classes_` and `calibration_`.
    """

    model_: Model
    columns_: TableEncoder
    one_output_: bool
    target_names_: list[str] | None
    chosen_: Chosen
    report_: list[CellReport]
    seconds_: dict[str, float]
    validation_rows_: DiagnosticRows
    statistics_: CellStatistics | None
    n_features_in_: int

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...


E = TypeVar("E", bound=SavableEstimator)


def save_estimator(
    estimator: SavableEstimator, path: str | Path, centers: str | None = None
) -> float | None:
    """Write a fitted estimator to one file, a path or a URL, completely or not at all.

    With `centers` "float32" or "float16" the centres are rounded, and what that loses is returned:
    the root mean squared change of predictions, over their spread.
    """
    model, dtype, loss = estimator.model_, None, None
    if centers is not None:
        dtype = CENTERS_DTYPES[check_one_of("centers", centers, CENTERS_DTYPES)]
        model, loss = round_centers(model, dtype)
    # A subclass is saved as the estimator of parkrr that it derives from, without its parameters.
    [*_, kind] = [kind for kind in type(estimator).__mro__ if "_kind" in vars(kind)]
    known: list[str] = kind._get_param_names()  # type: ignore[attr-defined]
    facts, tensors = encode_estimator(estimator, kind._kind, known)  # type: ignore[attr-defined]
    with model_file_errors(CANNOT_HOLD):
        check_estimator(facts, tensors, model, known)
    folder, name = locate_file(path)
    folder.put(name, lambda file: write_model(file, model, facts, tensors, dtype))
    return loss


def load_estimator(path: str | Path, kinds: Mapping[str, type[E]]) -> E:
    """Read an estimator from a file or a URL; `kinds` are the classes that may be in it, by name.

    Nothing in the file is run. Centres and weights stay in the file and are mapped, also if the
    file is a local copy that is removed afterwards.
    """
    folder, name = locate_file(path)
    with folder.local(name) as file:
        saved = read_model(file, shared=True)
        kind = saved.facts.get("estimator")
        if not isinstance(kind, str) or kind not in kinds:
            raise ModelFileError(
                f"{str(path)!r} holds no estimator, but part of a fit; load the file that save "
                f"or 'parkrr fit' wrote"
            )
        with model_file_errors(f"{str(file)!r} is damaged"):
            defaults = kinds[kind]().get_params(deep=False)
            check_estimator(saved.facts, saved.more, saved.model, defaults)
            params = decode_params(saved.facts["params"], saved.model.metric)
            estimator = kinds[kind](**params)
            vars(estimator).update(decode_attributes(saved, defaults | params))
    return estimator


def encode_estimator(
    estimator: SavableEstimator, kind: str, known: list[str]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fitted attributes, and the known parameters, as plain facts and tensors."""
    lists = {
        name: getattr(estimator, name).tolist() if hasattr(estimator, name) else None
        for name in ("classes_", "feature_names_in_", "feature_importances_")
    }
    chosen = estimator.chosen_
    uncertainty: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    statistics = None
    if lists["classes_"] is None:
        uncertainty, tensors = encode_intervals(estimator.intervals_)  # type: ignore[attr-defined]
    elif estimator.calibration_ is not None:  # type: ignore[attr-defined]
        uncertainty = estimator.calibration_.to_dict()  # type: ignore[attr-defined]
    tensors |= rows_to_tensors(estimator.validation_rows_, getattr(estimator, "classes_", None))
    if estimator.statistics_ is not None:
        statistics, sums = estimator.statistics_.to_tensors()
        tensors |= {f"statistics.{name}": tensor for name, tensor in sums.items()}
    facts = {
        "estimator": kind,
        "params": encode_params(estimator.get_params(deep=False), known),
        "columns": estimator.columns_.plain(),
        "classes": lists["classes_"],
        "one_output": estimator.one_output_,
        "target_names": estimator.target_names_,
        "n_features_in_": estimator.n_features_in_,
        "feature_names_in_": lists["feature_names_in_"],
        "feature_importances_": encode_numbers(lists["feature_importances_"]),
        "chosen": encode_numbers(
            {**chosen._asdict(), "params": encode_params(chosen.params, known)}
        ),
        "seconds_": estimator.seconds_,
        "report_": encode_report(estimator.report_),
        "uncertainty": uncertainty,
        "statistics": statistics,
    }
    return facts, tensors


def decode_attributes(saved: SavedModel, params: dict[str, Any]) -> dict[str, Any]:
    """The fitted attributes of an estimator with these parameters, from checked facts."""
    model, facts, more = saved
    classes = None if facts["classes"] is None else np.array(facts["classes"])
    chosen = facts["chosen"]
    report = decode_report(facts["report_"])
    attributes = {
        "model_": model,
        "columns_": TableEncoder.from_plain(facts["columns"]),
        "validation_rows_": rows_from_tensors(more, classes),
        "n_features_in_": facts["n_features_in_"],
        "target_names_": facts["target_names"],
        "seconds_": facts["seconds_"],
        "chosen_": Chosen(
            {**params, **decode_params(chosen["params"], model.metric)},
            decode_numbers(chosen["tried"]),
            chosen["seconds"],
            chosen["uncertainty"],
        ),
        "report_": report,
        "n_cells_": len(report),
        "n_iter_": max(1, *(cell.iterations for cell in report)),
    }
    for name, dtype in (("feature_names_in_", object), ("feature_importances_", np.float64)):
        if facts[name] is not None:
            attributes[name] = np.array(decode_numbers(facts[name]), dtype=dtype)
    if facts["statistics"] is not None:
        sums = select_prefix(more, "statistics.")
        attributes["statistics_"] = CellStatistics.from_tensors(facts["statistics"], sums, model)
    uncertainty = facts["uncertainty"]
    if classes is None:
        attributes["one_output_"] = facts["one_output"]
        attributes["intervals_"] = decode_intervals(uncertainty, more, model.centers)
    else:
        attributes["classes_"] = classes
        attributes["calibration_"] = calibration_from_dict(uncertainty) if uncertainty else None
    return attributes


def encode_report(report: list[CellReport]) -> dict[str, list[Any]]:
    """A list of values for each field: 10^5 objects took three times the bytes and the time."""
    columns = zip(*report, strict=True)
    return {
        name: encode_numbers(list(column))
        for name, column in zip(CellReport._fields, columns, strict=True)
    }


def decode_report(data: dict[str, list[Any]]) -> list[CellReport]:
    """The report of all cells."""
    columns = [data[name] for name in CellReport._fields]
    # Only numbers that are not finite are text in a column of numbers, and they are rare.
    mixed = [set(map(type, column)) > {str} for column in columns]
    columns = [decode_numbers(c) if some else c for c, some in zip(columns, mixed, strict=True)]
    return list(map(CellReport._make, zip(*columns, strict=True)))


def encode_params(params: dict[str, Any], known: list[str]) -> dict[str, Any]:
    """The known ones among the parameters of an estimator as plain data.

    An engine is saved by its name, a random generator and what belongs to one fit not at all.
    """
    kept = [name for name in known if name in params and name not in OF_ONE_FIT]
    return {name: encode_param(params[name]) for name in kept}


def encode_param(value: Any) -> Any:
    """One parameter as plain data: a scalar, or an object with one field that names its kind."""
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Kernel):
        return {"kernel": encode_kernel(value)}
    if isinstance(value, FeatureMap):
        return {"metric": "of the model"}
    if isinstance(value, Blend):
        return {"blend": asdict(value)}
    if isinstance(value, Coarse):
        kernel = None if value.kernel is None else encode_kernel(value.kernel)
        return {"coarse": {"n_centers": value.n_centers, "kernel": kernel}}
    if isinstance(value, dict):
        return {"pairs": [list(pair) for pair in value.items()]}
    if isinstance(value, list | tuple | np.ndarray):
        return {"numbers": np.asarray(value, dtype=np.float64).tolist()}
    if isinstance(value, np.random.RandomState):
        return None
    if hasattr(value, "remote"):  # an engine; one of your own is not in the file
        return getattr(value, "name", "local")
    return str(value)


def decode_params(data: dict[str, Any], metric: FeatureMap) -> dict[str, Any]:
    """Parameters from checked plain data; `metric` is the feature map of the model."""
    return {name: decode_param(value, metric) for name, value in data.items()}


def decode_param(value: Any, metric: FeatureMap) -> Any:
    """One parameter from checked plain data."""
    if not isinstance(value, dict):
        return value
    [(kind, data)] = value.items()
    if kind == "kernel":
        return decode_kernel(data)
    if kind == "blend":
        return Blend(**data)
    if kind == "numbers":
        return np.array(data)
    if kind == "pairs":
        return dict(data)
    if kind == "coarse":
        return Coarse(data["n_centers"], data["kernel"] and decode_kernel(data["kernel"]))
    return metric


def encode_numbers(value: Any) -> Any:
    """Plain data in which "nan", "inf" and "-inf" stand for these numbers, which JSON lacks."""
    if isinstance(value, dict):
        return {key: encode_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [encode_numbers(inner) for inner in value]
    if isinstance(value, float):  # also one of numpy
        return float(value) if math.isfinite(value) else str(float(value))
    return value


def decode_numbers(value: Any) -> Any:
    """The data that :func:`encode_numbers` was given."""
    if isinstance(value, dict):
        return {key: decode_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [decode_numbers(inner) for inner in value]
    return float(value) if value in ("nan", "inf", "-inf") else value


def encode_intervals(intervals: Intervals) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Prediction intervals as plain facts and tensors."""
    learned = intervals.learned
    kernel = learned and encode_kernel(learned.kernel)
    tensors = {
        "noise": intervals.posterior.noise,
        "ridge": intervals.posterior.ridge,
        "factors": intervals.factors,
        "quantiles": intervals.quantiles,
    }
    if learned is not None:
        tensors |= {"centers": learned.centers, "weights": learned.weights}
    if (scores := intervals.scores) is not None:
        tensors |= {
            "scores.values": scores.values,
            "scores.w": scores.w,
            "scores.counts": scores.counts,
            "scores.group_of_cell": scores.group_of_cell,
        }
    if (jackknife := intervals.jackknife) is not None:
        counts = [B.shape[1] for B in jackknife.columns]
        tensors |= {
            "jackknife.columns": torch.cat([B.double().reshape(-1) for B in jackknife.columns]),
            "jackknife.counts": torch.tensor(counts),
            "jackknife.changes": jackknife.changes,
            "jackknife.residuals": jackknife.residuals,
        }
    facts = {"scale": intervals.scale_name, "n": intervals.n, "kernel": kernel}
    more = {"power": intervals.power, "equal_tails": intervals.equal_tails}
    return facts | more | {"guarantee": intervals.guarantee}, tensors


def decode_intervals(
    facts: dict[str, Any], tensors: dict[str, Tensor], centers: Sequence[Tensor]
) -> Intervals:
    """The prediction intervals that checked facts and tensors describe."""
    learned = None
    if facts["kernel"] is not None:
        kernel = decode_kernel(facts["kernel"])
        learned = NystromModel(kernel, tensors["centers"], tensors["weights"])
    posterior = Posterior(tensors["noise"], tensors["ridge"])
    factors, quantiles = tensors["factors"], tensors["quantiles"]
    guarantee, scores, jackknife = facts["guarantee"], None, None
    if guarantee in ("split", "cell"):
        scores = ConformalScores(guarantee, **select_prefix(tensors, "scores."))
    elif guarantee == "jackknife+":
        own = select_prefix(tensors, "jackknife.")
        shapes = [(len(Z), h) for Z, h in zip(centers, own["counts"].tolist(), strict=True)]
        parts = torch.split(own["columns"], [m * h for m, h in shapes])
        columns = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
        jackknife = JackknifePlus(columns, own["changes"], own["residuals"])
    return Intervals(
        posterior,
        facts["scale"],
        learned,
        factors,
        quantiles,
        facts["n"],
        facts["power"],
        facts["equal_tails"],
        scores,
        jackknife,
    )
