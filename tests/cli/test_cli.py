"""The command line as a person or a script sees it: stdout, stderr and exit codes."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import parkrr
from parkrr import Gaussian, ParKRegressor, load
from parkrr.__main__ import main
from parkrr.cli import commands, terminal
from parkrr.cli import exit_codes as exits
from parkrr.cli.app import app
from parkrr.data.storage import open_folder
from parkrr.errors import CellError, StorageError
from parkrr.inspection import drift, explain, shapley_values

N = 1500
QUICK = ("--kernel", "gaussian", "--metric", "standard", "--penalty", "1e-3", "--n-cells", "2")
QUICK += ("--blend", "1", "--coarse", "0")
NUMBERS = ("--features", "a,b,c")


def run(*args):
    return CliRunner().invoke(app, [str(word) for word in args])


def rows(n=N):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.05 * rng.normal(size=n)
    columns = {"id": np.arange(n), "a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}
    columns |= {"city": np.tile(["007", "010", "011"], n // 3), "y": y}
    return pa.table({**columns, "label": np.where(y > 0, "high", "low"), "high": y > 0})


def write(table, path):
    """The rows in the kind of file that the name has."""
    kinds = {
        ".parquet": lambda: pq.write_table(table, path, row_group_size=len(table) // 12),
        ".csv": lambda: pv.write_csv(table, path),
        ".tsv": lambda: pv.write_csv(table, path, pv.WriteOptions(delimiter="\t")),
        ".gz": lambda: pv.write_csv(table, pa.output_stream(path, compression="gzip")),
        ".arrow": lambda: write_batches(table, pa.ipc.new_file(path, table.schema)),
        ".feather": lambda: pa.feather.write_feather(table, path),
        ".ipc": lambda: write_batches(table, pa.ipc.new_stream(path, table.schema)),
    }
    kinds[path.suffix]()
    return path


def write_batches(table, writer):
    with writer:
        writer.write_table(table, max_chunksize=400)


def markers(checkpoint):
    return {path.name: path.stat().st_mtime_ns for path in Path(checkpoint).glob("*.json")}


def fitted(data, model, *args):
    return run("fit", data, "--target", "y", "-o", model, "--no-report", *QUICK, *args)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows as Parquet, and two models of them."""
    folder = tmp_path_factory.mktemp("cli")
    data = write(rows(), folder / "rows.parquet")
    args = ("fit", data, *QUICK, "--features", "a,b,c,city", "--no-report", "--json", "-q")
    for target in ("y", "label"):
        done = run(*args, "--target", target, "-o", folder / f"{target}.park")
        (folder / f"{target}.json").write_text(done.stdout)
    return folder


@pytest.fixture
def data(folder):
    return folder / "rows.parquet"


# Files in, files out.


@pytest.mark.parametrize(
    "name", ["r.csv", "r.tsv", "r.csv.gz", "r.arrow", "r.feather", "r.ipc"], ids=str
)
def test_the_same_rows_in_another_kind_of_file_give_the_same_predictions(data, tmp_path, name):
    other = write(rows(), tmp_path / name)
    for source, model in ((data, "one.park"), (other, "other.park")):
        assert fitted(source, tmp_path / model, *NUMBERS, "-q").exit_code == 0
    predictions = [tmp_path / "one.parquet", tmp_path / "other.parquet"]
    assert run("predict", tmp_path / "one.park", data, "-o", predictions[0]).exit_code == 0
    assert run("predict", tmp_path / "other.park", other, "-o", predictions[1]).exit_code == 0
    one, two = map(pq.read_table, predictions)
    assert one.equals(two)


def test_kinds_of_columns_are_declared(data, tmp_path):
    model = tmp_path / "model.park"
    assert fitted(data, model, "--columns", "id=ignore,city=category", "-q").exit_code == 0
    assert load(model).columns == {"id": "ignore", "city": "category"}
    done = run("fit", data, "--target", "y", "-o", tmp_path / "other.park", "--columns", "id")
    assert "columns must be written as zip=category,note=ignore, got 'id'" in done.stderr


def test_a_glob_of_csv_files_is_all_of_their_rows(data, tmp_path):
    whole = rows()
    write(whole[:700], tmp_path / "r1.csv")
    write(whole[700:], tmp_path / "r2.csv")
    done = fitted(tmp_path / "r*.csv", tmp_path / "m.park", "--json", *NUMBERS)
    assert json.loads(done.stdout)["rows"] == N


READERS = {
    ".parquet": pq.read_table,
    ".csv": pv.read_csv,
    ".arrow": lambda path: pa.ipc.open_file(path).read_all(),
}


@pytest.mark.parametrize("kind", sorted(READERS))
def test_predictions_go_to_the_kind_of_file_that_is_named(folder, data, tmp_path, kind):
    out = tmp_path / f"out{kind}"
    args = ("--keys", "id", "--outputs", "prediction,interval,std,novelty", "--coverage", "0.8")
    done = run("predict", folder / "y.park", data, "-o", out, *args)
    assert done.stdout.startswith(f"{out}: 1,500 rows in ")
    table = READERS[kind](out)
    assert table.schema.names == ["id", "prediction", "lower", "upper", "std", "novelty"]
    assert table["id"].to_pylist() == list(range(N))
    model = load(folder / "y.park")
    wanted = model.predict(rows().select(["a", "b", "c", "city"]))
    np.testing.assert_allclose(table["prediction"].to_numpy(), wanted, rtol=1e-12)
    assert sorted(path.name for path in tmp_path.iterdir()) == [out.name]


def test_probabilities_have_a_column_for_each_label_in_csv(folder, data, tmp_path):
    args = ("predict", folder / "label.park", data, "--outputs", "prediction,probability", "-o")
    assert run(*args, tmp_path / "out.csv").exit_code == 0
    assert run(*args, tmp_path / "out.parquet").exit_code == 0
    flat, lists = pv.read_csv(tmp_path / "out.csv"), pq.read_table(tmp_path / "out.parquet")
    assert flat.schema.names == ["prediction", "probability_high", "probability_low"]
    both = np.stack([flat[name].to_numpy() for name in flat.schema.names[1:]], 1)
    np.testing.assert_allclose(both, np.array(lists["probability"].to_pylist()), rtol=1e-12)


@pytest.mark.parametrize("name", ["new.parquet", "new.csv"])
def test_a_folder_of_predictions_is_not_predicted_twice(folder, tmp_path, name):
    data = write(rows(), tmp_path / name)
    args = ("predict", folder / "y.park", data, "-o", tmp_path / "out", "--json")
    assert json.loads(run(*args).stdout)["rows"] == N
    assert json.loads(run(*args).stdout)["rows"] == 0
    assert pq.read_table(tmp_path / "out" / "part-00000.parquet").num_rows == N
    left = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert left == ["_job.json", "_part-00000.parquet.json", "part-00000.parquet"]


def test_categories_that_look_like_numbers_stay_categories_in_csv(folder, data, tmp_path):
    few = write(rows().select(["a", "b", "c", "city"]), tmp_path / "new.csv")
    assert pv.read_csv(few).schema.field("city").type == pa.int64()
    run("predict", folder / "y.park", few, "-o", tmp_path / "one.parquet")
    run("predict", folder / "y.park", data, "-o", tmp_path / "two.parquet")
    assert pq.read_table(tmp_path / "one.parquet").equals(pq.read_table(tmp_path / "two.parquet"))


def test_a_model_of_an_array_predicts_named_columns(data, tmp_path):
    X = np.stack([rows()[name].to_numpy() for name in "abc"], 1)
    model = ParKRegressor(Gaussian(), 1e-3, "standard", blend=1, coarse=0, random_state=0)
    model.fit(X, X[:, 0]).save(tmp_path / "m.park")
    out = tmp_path / "out.parquet"
    assert run("predict", tmp_path / "m.park", data, "-o", out).exit_code == exits.USAGE
    assert run("predict", tmp_path / "m.park", data, "-o", out, *NUMBERS).exit_code == 0
    np.testing.assert_allclose(pq.read_table(out)["prediction"].to_numpy(), model.predict(X))


# What is replaced, refused and kept.


@pytest.mark.parametrize("name", ["answers.xlsx", "answers.json", "answers.v2", "answers.txt"])
def test_predictions_of_another_ending_are_refused_with_those_that_work(
    folder, data, tmp_path, name
):
    code, error = error_of("predict", folder / "y.park", data, "-o", tmp_path / name)
    assert code == exits.USAGE
    assert error["message"] == (
        "output must end in .parquet, .arrow, .feather, .ipc, .csv, .tsv (.csv and .tsv also with "
        f".gz, .bz2 or .zst), or in / for a folder of Parquet files, got {str(tmp_path / name)!r}"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_have_a_dot_if_its_name_ends_so(folder, data, tmp_path):
    out = f"{tmp_path / 'answers.v2'}/"
    assert run("predict", folder / "y.park", data, "-o", out, "-q").exit_code == 0
    assert run("predict", folder / "y.park", data, "-o", out[:-1], "-q").exit_code == 0  # resumes
    assert len(pq.read_table(out)) == N


@pytest.mark.parametrize(
    "args", [("fit", "--target", "y", "--no-report"), ("fit", "--target", "y"), ("predict",)]
)
def test_a_file_that_exists_is_replaced_only_by_force(folder, data, tmp_path, args):
    command, *more = args
    source = (folder / "y.park", data) if command == "predict" else (data, *QUICK, *NUMBERS)
    for name in ("out.csv", "out.html"):
        (tmp_path / name).write_text("precious")
    call = (command, *source, *more, "-q", "-o", tmp_path / "out.csv")
    code, error = error_of(*call)
    assert code == exits.STORAGE
    assert error["message"].endswith("it exists; use --force to replace it, or another name")
    assert (tmp_path / "out.csv").read_text() == "precious"
    done = run(*call, "--force")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out.csv").read_bytes() != b"precious"


def test_a_report_that_exists_is_replaced_only_by_force(data, tmp_path):
    (tmp_path / "m.html").write_text("precious")
    code, error = error_of("fit", data, "--target", "y", "-o", tmp_path / "m.park")
    assert (code, "m.html' cannot be written: it exists" in error["message"]) == (
        exits.STORAGE,
        True,
    )


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_columns_of_the_input_are_kept_beside_predictions(folder, data, tmp_path, name):
    out = tmp_path / name
    done = run("predict", folder / "y.park", data, "-o", out, "--keep-columns", "-q")
    assert done.exit_code == 0, done.stderr
    table = READERS[out.suffix](out)
    assert table.schema.names == [*rows().schema.names, "prediction"]
    assert table["label"].to_pylist() == rows()["label"].to_pylist()


@pytest.mark.parametrize("packed", ["gz", "bz2", "zst"])
def test_predictions_are_compressed_by_the_end_of_their_name(folder, data, tmp_path, packed):
    out = tmp_path / f"out.csv.{packed}"
    assert run("predict", folder / "y.park", data, "-o", out, "-q").exit_code == 0
    assert len(pv.read_csv(pa.input_stream(str(out), compression="detect"))) == N


# Scores.


def test_scores_of_files_are_shown_and_in_json(folder, data):
    args = ("score", folder / "y.park", data, "-q")
    done = run(*args)
    assert done.exit_code == 0, done.stderr
    for part in ("1,500 rows", "root mean squared error  0.", "R2", "share in 0.9 interval"):
        assert part in done.stdout
    found = json.loads(run(*args, "--json").stdout)
    table = rows()
    wanted = load(folder / "y.park").score(table.select(["a", "b", "c", "city"]), table["y"])
    assert found["r2"] == pytest.approx(wanted)
    assert found["rows"] == N


def test_labels_of_csv_files_are_scored(folder, tmp_path):
    new = write(rows().drop_columns(["y"]), tmp_path / "new.csv")
    done = run("score", folder / "label.park", new, "--target", "label", "--json", "-q")
    found = json.loads(done.stdout)
    assert found["error"] < 0.1
    assert found["auc"] > 0.95


def test_a_model_of_a_target_without_a_name_is_scored_against_the_one_that_is_named(data, tmp_path):
    X = np.stack([rows()[name].to_numpy() for name in "abc"], 1)
    model = ParKRegressor(Gaussian(), 1e-3, "standard", blend=1, coarse=0, random_state=0)
    model.fit(X, rows()["y"].to_numpy()).save(tmp_path / "m.park")
    code, error = error_of("score", tmp_path / "m.park", data, *NUMBERS)
    assert code == exits.USAGE
    assert "was fitted to a target without a name; use --target" in error["message"]
    done = run("score", tmp_path / "m.park", data, *NUMBERS, "--target", "y", "--json", "-q")
    assert json.loads(done.stdout)["r2"] > 0.9


# What was meant.


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (("scor", "m", "d"), "Did you mean 'score'?"),
        (("fit", "d", "--targt", "y", "-o", "m"), "--target"),
        (("plan", "DATA", "--target", "lable"), "did you mean 'label'?"),
        (("plan", "DATA", "--target", "y", "--features", "cty"), "did you mean 'city'?"),
        (("plan", "DATA", "--target", "y", "--kernel", "gausian"), "did you mean 'gaussian'?"),
        (("plan", "DATA", "--target", "y", "--filter", "cty == '007'"), "did you mean 'city'?"),
    ],
)
def test_a_misspelt_word_is_answered_with_the_one_that_was_meant(data, args, meant):
    done = run(*(data if word == "DATA" else word for word in args))
    assert done.exit_code == exits.USAGE
    assert meant in said(done)


# CSV files as people have them.


def test_options_set_how_csv_is_read(tmp_path):
    lines = [f"{k}!{k % 7}.{k % 10}!%x{k % 3}!y%" for k in range(400)]
    (tmp_path / "r.csv").write_text("a!y!c\n~ a note ! ! !\n" + "\n".join(lines), encoding="utf-16")
    args = ("--delimiter", "!", "--quote", "%", "--comment", "~", "--encoding", "utf-16")
    more = ("--types", "a=float64", "--decimal", ".", "--filter", "a < 350", "--features", "a,c")
    done = fitted(tmp_path / "r.csv", tmp_path / "m.park", *args, *more, "--json", "-q")
    found = json.loads(done.stdout)
    assert found["rows"] == 350, found
    assert [one["name"] for one in found["features"]] == ["a", "c"]


def test_a_german_file_needs_no_option(tmp_path):
    table = rows(300)
    columns = (table[name].to_pylist() for name in "aby")
    lines = [f"{a:.4f};{b:.4f};{y:.4f}" for a, b, y in zip(*columns, strict=True)]
    text = "# Messwerte\nlänge;größe;ergebnis\n" + "\n".join(lines).replace(".", ",")
    (tmp_path / "werte.csv").write_bytes(text.encode("latin-1"))
    args = ("fit", tmp_path / "werte.csv", "-t", "ergebnis", "-o", tmp_path / "m.park", *QUICK)
    done = run(*args, "--json", "-q", "--no-report")
    found = json.loads(done.stdout)
    assert [one["name"] for one in found["features"]] == ["länge", "größe"]
    assert [one["kind"] for one in found["features"]] == ["number", "number"]


@pytest.mark.parametrize("option", ["--delimiter", "--encoding", "--types"])
def test_options_of_csv_are_refused_for_other_files(data, option):
    value = {"--delimiter": ";", "--encoding": "latin-1", "--types": "a=string"}[option]
    code, error = error_of("plan", data, "--target", "y", option, value)
    assert code == exits.USAGE
    assert f"{option[2:]} must be given for CSV files only" in error["message"]


# What is said.


def test_a_fit_shows_what_it_chose_and_how_far_off_it_is(data, tmp_path):
    done = fitted(data, tmp_path / "m.park", *NUMBERS)
    assert done.exit_code == 0, done.stderr
    assert f"{tmp_path / 'm.park'}: fitted to 1,500 rows in " in done.stdout
    assert "gaussian, lengthscale " in done.stdout
    assert "root mean squared error 0." in done.stdout
    assert "is double, so this is a regression; use --classify if it holds labels" in done.stderr


@pytest.mark.parametrize(
    ("options", "params"),
    [
        (("--loss", "poisson"), {"loss": "poisson"}),
        (("--loss", "tweedie", "--power", "1.3"), {"loss": "tweedie", "power": 1.3}),
    ],
    ids=["poisson", "tweedie"],
)
def test_a_loss_is_that_of_the_estimator(tmp_path, options, params):
    table = rows(600)
    counts = np.floor(np.exp(table["a"].to_numpy()))
    data = write(table.drop_columns("y").append_column("y", pa.array(counts)), tmp_path / "n.csv")
    done = fitted(data, tmp_path / "m.park", *NUMBERS, *options)
    assert done.exit_code == 0, done.stderr
    model, X = load(tmp_path / "m.park"), table.select(["a", "b", "c"]).to_pandas()
    quick = {"penalty": 1e-3, "n_cells": 2, "blend": 1, "coarse": 0, "metric": "standard"}
    known = ParKRegressor(kernel="gaussian", **quick, **params, random_state=0).fit(X, counts)
    np.testing.assert_allclose(model.predict(X), known.predict(X), rtol=1e-6)


def test_a_loss_for_labels_is_refused(data, tmp_path):
    given = ("fit", data, "--target", "label", "-o", tmp_path / "m.park", "--loss", "poisson")
    code, error = error_of(*given)
    assert code == exits.USAGE
    assert "loss and power must be left out of a classification" in error["message"]


def test_a_quiet_fit_shows_nothing_but_its_result(data, tmp_path):
    done = fitted(data, tmp_path / "m.park", *NUMBERS, "--quiet")
    assert done.stderr == ""
    assert "leave-one-out" in done.stdout


def test_a_fit_in_json_is_one_document(folder):
    found = json.loads((folder / "y.json").read_text())
    assert found["estimator"] == "ParKRegressor"
    assert found["kernel"]["name"] == "gaussian"
    assert found["kernel"]["lengthscale"] != 1.0  # it was chosen
    assert found["validation"]["rmse"] < 0.5
    assert [one["kind"] for one in found["features"]] == [*["number"] * 3, "3 categories"]
    assert sum(one["importance"] for one in found["features"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("target", "estimator"),
    [("y", "ParKRegressor"), ("label", "ParKClassifier"), ("high", "ParKClassifier")],
)
def test_strings_and_booleans_are_classified(data, tmp_path, target, estimator):
    args = ("--target", target, "-o", tmp_path / "m.park", "--no-report", "--json")
    done = run("fit", data, *args, *QUICK, *NUMBERS)
    assert json.loads(done.stdout)["estimator"] == estimator


def test_numbers_are_labels_if_asked_for(tmp_path):
    data = write(rows().append_column("n", pa.array(np.arange(N) % 3)), tmp_path / "r.parquet")
    args = (
        "--target",
        "n",
        "--classify",
        "-o",
        tmp_path / "m.park",
        "--no-report",
        "--json",
        "-q",
    )
    done = run("fit", data, *args, *QUICK, *NUMBERS)
    assert json.loads(done.stdout)["classes"] == [0, 1, 2]
    assert done.stderr == ""


def test_a_plan_is_shown_as_text_and_in_json(data):
    args = ("plan", data, "--target", "y", *NUMBERS)
    told = run(*args)
    assert told.exit_code == 0, told.stderr
    assert "1,500 rows" in told.stdout
    assert json.loads(run(*args, "--json").stdout)["rows"] == N


def test_a_report_is_written_beside_the_model(data, tmp_path):
    args = ("--target", "y", "-o", tmp_path / "m.park", "--json")
    done = run("fit", data, *args, *QUICK, *NUMBERS)
    assert json.loads(done.stdout)["report"] == str(tmp_path / "m.html")
    assert "<html" in (tmp_path / "m.html").read_text()


def test_without_matplotlib_a_fit_has_no_report_and_shows_so(data, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "can_plot", lambda: False)
    args = ("fit", data, "--target", "y", "-o", tmp_path / "m.park", *QUICK, *NUMBERS)
    done = run(*args)
    assert done.exit_code == 0
    assert "no report: a report needs matplotlib" in done.stderr
    refused = run(*args, "--force", "--report", tmp_path / "r.html")
    assert refused.exit_code == exits.MISSING
    assert "a report needs matplotlib" in refused.stderr


def test_a_model_shows_what_it_is(folder):
    done = run("inspect", folder / "y.park", "--cells")
    assert done.exit_code == 0, done.stderr
    for args in ("ParKRegressor, ", "standard features", "3 categories", "█", "direct"):
        assert args in done.stdout
    assert max(map(len, done.stdout.splitlines()[1:])) <= 100


def test_the_cells_of_a_model_are_in_its_json(folder):
    found = json.loads(run("inspect", folder / "label.park", "--cells", "--json").stdout)
    assert found["bytes"] == (folder / "label.park").stat().st_size
    assert found["classes"] == ["high", "low"]
    assert sum(cell["rows"] for cell in found["per_cell"]) == found["rows"] == N


# Explanations.


def test_the_first_rows_are_explained_feature_by_feature(folder, data):
    done = run("explain", folder / "y.park", data, "--rows", 2, "--neighbors", 1)
    assert done.exit_code == 0
    assert "row 0: predicted" in done.stdout
    assert "row 1: predicted" in done.stdout
    assert "row 2" not in done.stdout
    assert done.stdout.count("training rows like it") == 2
    assert "shapley" not in done.stdout


def test_explanations_in_json_are_those_of_the_package(folder, data):
    done = run("explain", folder / "y.park", data, "--json", "--shapley", "-n", 2)
    facts = json.loads(done.stdout)
    model, X = load(folder / "y.park"), rows().select(["a", "b", "c", "city"])[:2]
    wanted, shapley = explain(model, X), shapley_values(model, X)
    for i, row in enumerate(facts["rows"]):
        features = row["features"]
        assert [one["name"] for one in features] == ["a", "b", "c", "city"]
        assert features[3]["value"] == rows()["city"][i].as_py()
        assert features[3]["slope"] is None
        np.testing.assert_allclose(
            [one["contribution"] for one in features], wanted.contributions[i]
        )
        np.testing.assert_allclose([one["shapley"] for one in features], shapley.values[i])
        assert len(row["neighbors"]) == 3
    assert facts["base"] == wanted.base


def test_rows_of_csv_files_are_explained_by_a_model_of_an_array(data, tmp_path):
    table = rows()
    X = np.stack([table[name].to_numpy() for name in "abc"], 1)
    model = ParKRegressor(Gaussian(1.0), 1e-3, n_cells=1, blend=1, coarse=0, random_state=0)
    model.fit(X, table["y"].to_numpy()).save(tmp_path / "array.park")
    write(table, tmp_path / "r.csv")
    args = ("--features", "a,b,c", "--json", "-q")
    done = run("explain", tmp_path / "array.park", tmp_path / "r.csv", *args)
    predictions = [row["prediction"] for row in json.loads(done.stdout)["rows"]]
    np.testing.assert_allclose(predictions, model.predict(X[:3]))


def test_a_report_of_explanations_has_partial_dependence(folder, data, tmp_path):
    done = run("explain", folder / "y.park", data, "--report", tmp_path / "r.html", "-q")
    assert done.exit_code == 0
    assert "<h2>Explanations</h2>" in (tmp_path / "r.html").read_text()
    again = run("explain", folder / "y.park", data, "--report", tmp_path / "r.html", "-q")
    assert again.exit_code == exits.STORAGE


@pytest.mark.parametrize(
    ("args", "rule"),
    [
        (("--rows", "0"), "rows must be a whole number >= 1, got 0"),
        (("--target", "7"), "target must be a number from 0 to 0, got 7"),
        (("--neighbors", "-1"), "n_neighbors must be a whole number >= 1, got -1"),
    ],
)
def test_wrong_options_of_explain_are_wrong_usage(folder, data, args, rule):
    done = run("explain", folder / "y.park", data, *args)
    assert done.exit_code == exits.USAGE
    assert rule in done.stderr


def test_shapley_values_of_another_kernel_are_wrong_usage(data, tmp_path):
    model = tmp_path / "laplacian.park"
    other = ("--kernel", "laplacian", *NUMBERS, "-q")
    assert fitted(data, model, *other).exit_code == 0
    done = run("explain", model, data, "--shapley")
    assert done.exit_code == exits.USAGE
    assert "shapley_values need a Gaussian kernel" in done.stderr


def test_a_column_that_is_not_there_cannot_be_explained(folder, tmp_path):
    other = write(rows().drop_columns(["b"]), tmp_path / "other.parquet")
    done = run("explain", folder / "y.park", other)
    assert done.exit_code == exits.USAGE
    assert "['b'] are missing" in done.stderr


# Rows unlike those of the fit.


@pytest.fixture
def moved(folder):
    """Rows whose first column lies elsewhere."""
    table = rows()
    place = table.schema.get_field_index("a")
    return write(table.set_column(place, "a", pc.add(table["a"], 3.0)), folder / "moved.parquet")


def test_rows_of_the_fit_show_no_drift(folder, data):
    done = run("drift", folder / "y.park", data)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].endswith("y.park: 1,500 rows")
    assert done.stdout.endswith("No drift.\n")


def test_rows_elsewhere_show_a_drift_in_text_json_and_exit_code(folder, moved):
    done = run("drift", folder / "y.park", moved)
    assert done.exit_code == exits.DRIFT
    assert done.stdout.splitlines()[-1].startswith("Drift: rows are novel")
    shown = run("drift", folder / "y.park", moved, "--json", "--alpha", "0.001")
    assert shown.exit_code == exits.DRIFT
    facts = json.loads(shown.stdout)
    result = drift(load(folder / "y.park"), pq.read_table(moved), 0.001)
    assert facts["cell_shares"] == [list(pair) for pair in result.cell_shares]
    assert (facts["novel_share"], facts["alpha"]) == (result.novel_share, 0.001)
    assert facts["has_drifted"] is True


def test_of_many_rows_some_are_drawn_for_drift(folder, moved):
    done = run("drift", folder / "y.park", moved, "--rows", 200)
    assert done.exit_code == exits.DRIFT
    assert "200 rows, drawn from 1,500" in done.stdout


def test_rows_of_csv_files_are_compared_with_a_model_of_an_array(data, tmp_path):
    table = pq.read_table(data, columns=["a", "b"])
    X = np.column_stack([table["a"], table["b"]])
    model = ParKRegressor(Gaussian(1.0), 1e-3, n_cells=1, blend=1, coarse=0, metric="standard")
    model.fit(X, X[:, 0]).save(tmp_path / "array.park")
    source = write(table, tmp_path / "r.csv")
    done = run("drift", tmp_path / "array.park", source, "-q")
    assert done.exit_code == 0, done.output
    assert "there is one cell" in done.stdout


@pytest.mark.parametrize(
    ("args", "rule"),
    [(("--rows", 0), "rows must be a whole number >= 1"), (("--alpha", 2), "alpha must be above")],
    ids=str,
)
def test_wrong_options_of_drift_are_wrong_usage(folder, data, args, rule):
    done = run("drift", folder / "y.park", data, *args)
    assert done.exit_code == exits.USAGE
    assert rule in said(done)


def test_the_version_is_the_version():
    assert run("--version").stdout == f"parkrr {parkrr.__version__}\n"


def test_help_shows_what_exit_codes_mean():
    told = run("--help").stdout
    assert all(meaning in told for meaning in exits.MEANINGS.values())


# Exit codes.


def error_of(*args):
    """The exit code, and the error in --json."""
    done = run(*args, "--json")
    return done.exit_code, json.loads(done.stdout)["error"]


def test_a_file_that_is_not_there_is_data_that_cannot_be_read(tmp_path):
    for name in ("no.parquet", "no.csv", "no.arrow", "no*.csv", "no/*.parquet"):
        code, error = error_of("plan", tmp_path / name, "--target", "y")
        assert (code, error["kind"]) == (exits.DATA, "SourceError")
        assert "no" in error["message"]


@pytest.mark.parametrize("name", ["bad.parquet", "bad.csv.gz", "bad.arrow"])
def test_a_file_of_something_else_is_data_that_cannot_be_read(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x00something else" * 100)
    code, error = error_of("plan", tmp_path / name, "--target", "y")
    assert code == exits.DATA
    assert name in error["message"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Empty CSV file"),
        ("a,y\n", "there are no rows"),
        ("a,a\n1,2\n", "it has column 'a' more than once"),
        ("a,y\n1,2\n1\n", "Expected 2 columns, got 1"),
    ],
)
def test_csv_that_makes_no_sense_is_refused_with_the_reason(tmp_path, text, reason):
    (tmp_path / "r.csv").write_text(text)
    code, error = error_of("plan", tmp_path / "r.csv", "--target", "y")
    assert code == exits.DATA
    assert reason in error["message"]


@pytest.mark.parametrize(
    "args",
    [
        ("--target", "nothing"),
        ("--target", ""),
        ("--target", "y", "--max-memory", "much"),
        ("--target", "y", "--n-cells", "0"),
        ("--target", "y", "--n-cells", "some"),
        ("--target", "y", "--types", "a=string"),
        ("--target", "y", "--nonsense"),
        (),
    ],
)
def test_a_wrong_parameter_is_wrong_usage(data, args):
    code, error = error_of("plan", data, *args)
    assert code == exits.USAGE
    assert error["message"]


def test_a_fit_that_cannot_keep_its_memory_is_refused_before_it_begins(data, tmp_path):
    args = ("--target", "y", "--checkpoint", tmp_path / "c", "--max-memory", "1GB")
    code, error = error_of("fit", data, *args, "-o", tmp_path / "m.park", *QUICK)
    assert (code, error["kind"]) == (exits.BUDGET, "BudgetError")
    assert not (tmp_path / "m.park").exists()


def test_a_plan_that_takes_too_long_ends_with_the_code_of_a_limit(data):
    done = run("plan", data, "--target", "y", *NUMBERS, "--time-budget", "0.01", "--json")
    assert done.exit_code == exits.BUDGET
    assert "time_budget=0.01 is too short" in json.loads(done.stdout)["advice"][0]


def test_a_model_and_its_report_are_two_files(data, tmp_path):
    code, error = error_of("fit", data, "--target", "y", "-o", tmp_path / "m.html")
    assert code == exits.USAGE
    assert "must be two files" in error["message"]


def test_a_model_that_could_not_be_written_is_refused_before_the_fit(data, tmp_path):
    code, error = error_of("fit", data, "--target", "y", "-o", tmp_path / "no" / "m.park")
    assert (code, error["kind"]) == (exits.STORAGE, "StorageError")
    assert "there is no folder" in error["message"]


def test_a_checkpoint_that_cannot_be_made_cannot_be_written(data, tmp_path):
    (tmp_path / "c").write_text("a file")
    args = ("-o", tmp_path / "m.park", "--checkpoint", tmp_path / "c", *QUICK, *NUMBERS)
    assert error_of("fit", data, "--target", "y", *args)[0] == exits.STORAGE


@pytest.mark.parametrize("name", ["rows.parquet", "nothing.park"])
def test_what_is_no_model_is_a_model_that_cannot_be_read(folder, data, tmp_path, name):
    code, error = error_of("inspect", folder / name)
    assert (code, error["kind"]) == (exits.MODEL, "ModelFileError")
    predicting = error_of("predict", folder / name, data, "-o", tmp_path / "out.csv")
    assert predicting[0] == exits.MODEL


def test_a_checkpoint_of_another_fit_is_refused(data, tmp_path):
    args = (*NUMBERS, "--checkpoint", tmp_path / "c")
    assert fitted(data, tmp_path / "m.park", *args).exit_code == 0
    args = ("-o", tmp_path / "n.park", "--no-report", *QUICK, *args, "--random-state", "5")
    code, error = error_of("fit", data, "--target", "y", *args)
    assert (code, error["kind"]) == (exits.CHECKPOINT, "CheckpointError")
    assert "random_state was '0' and is '5'" in error["message"]


def test_a_checkpoint_keeps_converted_rows_while_their_source_is_the_same(tmp_path):
    data = write(rows(), tmp_path / "r.csv")
    args = (*NUMBERS, "--checkpoint", tmp_path / "c")
    assert fitted(data, tmp_path / "m.park", *args).exit_code == 0
    before = (tmp_path / "c" / "rows.parquet").stat().st_mtime_ns
    assert fitted(data, tmp_path / "m.park", *args, "--force").exit_code == 0
    assert (tmp_path / "c" / "rows.parquet").stat().st_mtime_ns == before
    os.utime(data, ns=(1, 1))
    changed = fitted(data, tmp_path / "m.park", *args, "--force")
    assert changed.exit_code == exits.CHECKPOINT
    assert "r.csv was" in changed.stderr


def test_a_failure_inside_a_cell_ends_with_the_code_of_its_cause():
    error = CellError(3, 10, "full")
    error.__cause__ = StorageError("x", "full")
    assert exits.code_of(error) == exits.STORAGE
    assert exits.code_of(CellError(3, 10, "why")) == exits.UNEXPECTED
    assert exits.code_of(OSError(28, "No space left on device")) == exits.STORAGE


def test_an_unexpected_error_shows_where_it_came_from(folder, monkeypatch):
    monkeypatch.setattr("parkrr.cli.commands.summarize", lambda model: 1 / 0)
    done = run("inspect", folder / "y.park")
    assert done.exit_code == exits.UNEXPECTED
    assert "error: division by zero" in done.stderr
    assert "Traceback" in done.stderr


def test_an_expected_error_shows_no_traceback_unless_asked(tmp_path):
    args = ("inspect", tmp_path / "no.park")
    assert run(*args).stderr.count("\n") == 1
    assert "Traceback" in run(*args, "--debug").stderr


def test_an_interrupted_fit_without_a_checkpoint_shows_how_it_could_go_on(
    data, tmp_path, monkeypatch
):
    def stopped(self, table):
        raise KeyboardInterrupt

    monkeypatch.setattr(ParKRegressor, "fit", stopped)
    args = ("fit", data, "--target", "y", "-o", tmp_path / "m.park", *QUICK, *NUMBERS)
    assert "nothing was saved; with --checkpoint" in run(*args).stderr
    assert error_of(*args)[0] == exits.INTERRUPTED


def test_a_second_ctrl_c_does_not_wait(monkeypatch, capfd):
    ended = []
    monkeypatch.setattr(exits.os, "_exit", ended.append)
    with exits.interruptible():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert "press Ctrl-C again to stop now" in capfd.readouterr().err
        signal.raise_signal(signal.SIGINT)
    assert ended == [exits.INTERRUPTED]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lines_in_a_terminal_are_wrapped_at_spaces_but_not_before_units(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys, "stderr", Terminal())
    terminal.say("time     about 3 seconds: cells 1.5 s\n/a/path/that/is/long/but/whole", indent=9)
    assert sys.stderr.getvalue().splitlines() == [
        "time     about 3",
        "         seconds:",
        "         cells 1.5 s",
        "/a/path/that/is/long/but/whole",
    ]


def test_without_typer_the_command_line_shows_what_it_needs(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "parkrr.cli.app")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == exits.MISSING
    assert "the command line needs typer and rich" in capsys.readouterr().err


# Real processes.


@pytest.mark.parametrize("args", [["--help"], ["fit", "--help"], ["--version"], ["plam"]])
def test_what_needs_no_model_does_not_wait_for_torch(args):
    code = f"""
import sys
from parkrr.__main__ import main
sys.argv = ["parkrr", *{args}]
try:
    main()
finally:
    print({{"torch", "sklearn", "pyarrow"}} & set(sys.modules))
"""
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.stdout.endswith("set()\n")


# Ctrl-C as soon as one task is finished, whatever runs beside it.
INTERRUPTED = """
import os, signal, sys
import parkrr
print({"typer", "rich", "parkrr.cli.app"} & set(sys.modules))
from parkrr.__main__ import main
from parkrr.out_of_core.checkpoint import Checkpoint
publish = Checkpoint.publish
def stopping(self, name, *rest):
    Checkpoint.publish = publish
    publish(self, name, *rest)
    os.kill(os.getpid(), signal.SIGINT)
Checkpoint.publish = stopping
main()
"""


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """Arguments of a fit from CSV with a checkpoint, its folder, and how it ended."""
    folder = tmp_path_factory.mktemp("interrupted")
    data = write(rows(6000), folder / "r.csv")
    args = ["fit", str(data), "--target", "y", "-o", str(folder / "m.park"), "--no-report", "-q"]
    args += [*NUMBERS, *QUICK, "--checkpoint", str(folder / "c")]
    return args, folder, process("-c", INTERRUPTED, *args)


def process(*args):
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, timeout=120, check=False
    )


def test_the_package_alone_loads_neither_typer_nor_rich(interrupted):
    assert interrupted[2].stdout == "set()\n"


def test_ctrl_c_shows_the_command_that_goes_on_and_shows_no_traceback(interrupted):
    args, _, ended = interrupted
    assert ended.returncode == exits.INTERRUPTED, ended.stderr
    assert ended.stderr.splitlines()[-1] == " ".join(["parkrr", *args])
    assert "Traceback" not in ended.stderr


def test_a_fit_goes_on_after_ctrl_c_and_runs_nothing_again(interrupted):
    args, folder, _ = interrupted
    before = markers(folder / "c")
    assert "sorted-00000.json" in before
    done = process("-m", "parkrr", *args)
    assert done.returncode == 0, done.stderr
    after = markers(folder / "c")
    assert "sorted-00000.json" not in after  # all regions are fitted
    assert before["unfitted.park.json"] == after["unfitted.park.json"]
    assert load(folder / "m.park").n_cells_ == 2


# Folders of an object store.


def test_a_fit_its_model_and_its_predictions_go_through_a_bucket(data, s3):
    model = s3("cli/m.park")
    assert fitted(data, model, *NUMBERS, "--checkpoint", s3("cli/fit"), "-q").exit_code == 0
    assert run("predict", model, data, "-o", s3("cli/predictions"), "-q").exit_code == 0
    assert json.loads(run("inspect", model, "--json").stdout)["cells"] == 2
    assert "region-000000.json" in open_folder(s3("cli/fit")).names()
    written = {"_job.json", "_part-00000.parquet.json", "part-00000.parquet"}
    assert open_folder(s3("cli/predictions")).names() == written


def test_rows_of_csv_files_are_not_converted_in_a_bucket(tmp_path):
    source = write(rows(), tmp_path / "r.csv")
    done = fitted(source, tmp_path / "m.park", "--checkpoint", "s3://bucket/fit", "-q")
    assert done.exit_code == exits.USAGE
    assert "must be Parquet if 's3://bucket/fit' is a URL" in said(done)


def test_one_file_of_predictions_is_not_written_to_a_bucket(folder, data):
    done = run("predict", folder / "y.park", data, "-o", "s3://bucket/predictions.parquet")
    assert done.exit_code == exits.USAGE
    assert "output must be a folder, such as 's3://bucket/predictions'" in said(done)


def said(done):
    """What was printed, in one line."""
    return " ".join(done.stderr.split())
