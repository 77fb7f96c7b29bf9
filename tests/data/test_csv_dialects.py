"""CSV files as people have them: how they are written is recognised, or can be given."""

import bz2
import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parkrr import Gaussian, ParKRegressor, scan_csv, scan_parquet
from parkrr.data.csv import HEAD_BYTES, Dialect, convert_to_parquet, recognise_dialect
from parkrr.errors import ParameterError, SourceError

PLAIN = "city,price,n\nOslo,1.5,1\nRome,-20.25,2\n"
ROWS = {"city": ["Oslo", "Rome"], "price": [1.5, -20.25], "n": [1, 2]}


def read(path, **given):
    return pq.read_table(scan_csv(path, **given).row_groups[0].path).to_pydict()


def zstandard(text):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(text)
    return sink.getvalue().to_pybytes()


FILES = {
    "commas": PLAIN.encode(),
    "semicolons": PLAIN.replace(",", ";").encode(),
    "tabs": PLAIN.replace(",", "\t").encode(),
    "pipes": PLAIN.replace(",", "|").encode(),
    "decimal commas": PLAIN.replace(",", ";").replace(".", ",").encode(),
    "decimal commas and tabs": PLAIN.replace(",", "\t").replace(".", ",").encode(),
    "decimal commas in quotes": b'city,price,n\nOslo,"1,5",1\nRome,"-20,25",2\n',
    "quotes": b'"city","price","n"\n"Oslo",1.5,1\n"Rome",-20.25,2\n',
    "single quotes": b"'city';'price';'n'\n'Oslo';1.5;1\n'Rome';-20.25;2\n",
    "a byte order mark": b"\xef\xbb\xbf" + PLAIN.encode(),
    "UTF-16": PLAIN.encode("utf-16"),
    "lines of Windows": PLAIN.replace("\n", "\r\n").encode(),
    "no last line feed": PLAIN.rstrip("\n").encode(),
    "comments at the beginning": b"# made by a machine\n# on Monday, in Oslo; twice\n"
    + PLAIN.encode(),
    "comments in between": PLAIN.replace("Rome", "# the next is far away\nRome").encode(),
    "comments and semicolons": b"# a, b, c\n" + PLAIN.replace(",", ";").encode(),
    "gzip": gzip.compress(PLAIN.encode()),
    "bzip2": bz2.compress(PLAIN.encode()),
    "Zstandard": zstandard(PLAIN.encode()),
    "all at once": gzip.compress(
        b"\xef\xbb\xbf# notes\n" + PLAIN.replace(",", ";").replace(".", ",").encode()
    ),
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_the_same_rows_are_read_however_they_are_written(tmp_path, content):
    (tmp_path / "rows.csv").write_bytes(content)
    assert read(tmp_path / "rows.csv") == ROWS


@pytest.mark.parametrize("name", ["r.csv.gz", "r.csv.bz2", "r.csv.zst", "r.tsv", "r.txt"])
def test_a_name_does_not_have_to_fit_what_a_file_holds(tmp_path, name):
    (tmp_path / name).write_bytes(FILES["semicolons"])
    assert read(tmp_path / name) == ROWS


@pytest.mark.parametrize(
    ("encoding", "city"), [("latin-1", "Åre"), ("cp1252", "“Köln”"), ("utf-8", "“Köln” €")]
)
def test_letters_with_accents_are_read_in_their_encoding(tmp_path, encoding, city):
    (tmp_path / "rows.csv").write_bytes(f"city,y\n{city},1\n".encode(encoding))
    assert read(tmp_path / "rows.csv") == {"city": [city], "y": [1]}


def test_an_encoding_that_shows_far_down_is_answered_with_the_option(tmp_path):
    lines = "city,y\n" + "Oslo,1\n" * (HEAD_BYTES // 6) + "Åre,1\n"
    (tmp_path / "rows.csv").write_bytes(lines.encode("latin-1"))
    with pytest.raises(
        SourceError, match=r"'city' is not UTF-8; text must be .* --encoding|.*encoding="
    ):
        scan_csv(tmp_path / "rows.csv")
    assert read(tmp_path / "rows.csv", encoding="latin-1")["city"][-1] == "Åre"


def test_a_character_that_the_beginning_cuts_in_two_is_not_another_encoding():
    head = b"a" * (HEAD_BYTES - 1) + "é".encode()[:1]
    assert recognise_dialect(head, Dialect(), "r.csv").encoding == "utf-8"


def test_text_in_quotes_may_hold_delimiters_quotes_and_line_feeds(tmp_path):
    (tmp_path / "rows.csv").write_text('a,b\n"x, y",1\n"say ""no""",2\n"two\nlines",3\n')
    assert read(tmp_path / "rows.csv") == {"a": ["x, y", 'say "no"', "two\nlines"], "b": [1, 2, 3]}


def test_line_feeds_in_quotes_may_stand_anywhere_in_a_large_file(tmp_path):
    text = "a,b\n" + '"two\nlines",1\n' * 500
    (tmp_path / "r.csv").write_text(text)
    out = convert_to_parquet(str(tmp_path / "r.csv"), {}, tmp_path / "r.parquet", False, 100)
    assert pq.read_table(out)["a"].to_pylist() == ["two\nlines"] * 500


def test_a_comma_that_groups_thousands_is_no_decimal_sign(tmp_path):
    (tmp_path / "rows.tsv").write_text("a\tb\n1,234\t0.5\n2,500\t1.5\n")
    assert read(tmp_path / "rows.tsv") == {"a": ["1,234", "2,500"], "b": [0.5, 1.5]}


def test_names_that_begin_with_a_number_sign_are_names(tmp_path):
    (tmp_path / "rows.csv").write_text("#id,y\n1,2\n3,4\n")
    assert read(tmp_path / "rows.csv") == {"#id": [1, 3], "y": [2, 4]}


def test_apostrophes_are_no_quotes(tmp_path):
    (tmp_path / "rows.csv").write_text("name,y\nO'Hare,1\n'tis,2\n")
    assert read(tmp_path / "rows.csv") == {"name": ["O'Hare", "'tis"], "y": [1, 2]}


def test_one_column_has_no_delimiter(tmp_path):
    (tmp_path / "rows.csv").write_text("y\n1\n2\n")
    assert read(tmp_path / "rows.csv") == {"y": [1, 2]}


def test_what_is_given_is_not_recognised(tmp_path):
    (tmp_path / "rows.csv").write_text("a;b|c\n1,5;x|%y%\n%2,5;x|%z|%\n", encoding="cp1252")
    given = {"delimiter": "|", "quote": "%", "decimal": ".", "encoding": "cp1252", "comment": ""}
    assert read(tmp_path / "rows.csv", **given | {"comment": "%"}) == {"a;b": ["1,5;x"], "c": ["y"]}
    assert read(tmp_path / "rows.csv", delimiter=";", comment="%")["b|c"] == ["x|%y%"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delimiter": ";;"}, "delimiter must be one ASCII character, got ';;'"),
        ({"delimiter": ""}, "delimiter must be one ASCII character, got ''"),
        ({"quote": "é"}, "quote must be one ASCII character, got 'é'"),
        ({"decimal": ";"}, "decimal must be '.' or ',', got ';'"),
        ({"encoding": "latin-l"}, "such as .*, got 'latin-l'; did you mean 'latin-1'?"),
        ({"comment": "//"}, "comment must be at most one character, got '//'"),
        ({"types": {"pric": "string"}}, "'pric' is not one of .*; did you mean 'price'?"),
    ],
)
def test_what_is_given_wrongly_is_refused(tmp_path, given, message):
    (tmp_path / "rows.csv").write_text(PLAIN)
    with pytest.raises(ParameterError, match=message.replace("?", r"\?")):
        scan_csv(tmp_path / "rows.csv", **given)


@pytest.mark.parametrize(
    ("name", "character"), [("tab", "\t"), (r"\t", "\t"), ("semicolon", ";"), ("space", " ")]
)
def test_a_delimiter_may_be_named(name, character):
    assert Dialect(delimiter=name).delimiter == character


def test_a_line_of_another_width_is_answered_with_the_options(tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n" + "1,2\n" * 30 + "1,2,3\n")
    with pytest.raises(SourceError, match=r"Expected 2 columns, got 3.*; delimiter=, quote= and"):
        scan_csv(tmp_path / "rows.csv")


def test_a_late_value_of_another_type_is_named_with_both_ways_out(tmp_path):
    (tmp_path / "rows.csv").write_text("a;b\n" + "1;2\n" * 2_000_000 + "1;K1A\n")
    with pytest.raises(
        SourceError, match=r"column 'b' is int64 .* 'K1A' .* types=\{'b': 'string'\}"
    ):
        scan_csv(tmp_path / "rows.csv")


def test_rows_in_a_folder_are_converted_again_only_if_something_changed(tmp_path):
    (tmp_path / "rows.csv").write_text(PLAIN)
    given = {"path": tmp_path / "rows.csv", "folder": tmp_path / "kept"}
    rows = tmp_path / "kept" / "rows.parquet"
    first = scan_csv(**given).row_groups[0].path
    before = rows.stat()
    scan_csv(**given)
    assert (first, rows.stat().st_ino) == (str(rows), before.st_ino)
    scan_csv(**given, types={"n": "string"})
    assert rows.stat().st_ino != before.st_ino
    assert rows.stat().st_mtime_ns == before.st_mtime_ns  # that of the CSV file


def test_a_model_is_fitted_to_csv_and_predicts_csv(tmp_path):
    x = np.linspace(0, 6, 300)
    lines = [f"{a:.6f};{np.sin(a):.6f}".replace(".", ",") for a in x]
    (tmp_path / "rows.csv").write_text("x;y\n" + "\n".join(lines))
    model = ParKRegressor(Gaussian(0.5), 1e-6, blend=1, coarse=0, random_state=0, progress=False)
    model.fit(scan_csv(tmp_path / "rows.csv", target="y"))
    rows = scan_csv(tmp_path / "rows.csv", features="x", filter="x < 3")
    assert model.predict_to(rows, tmp_path / "out") == 150
    predicted = pq.read_table(tmp_path / "out")["prediction"].to_numpy()
    np.testing.assert_allclose(predicted, np.sin(x[:150]), atol=1e-2)


def test_several_files_are_a_glob(tmp_path):
    (tmp_path / "1.csv").write_text(PLAIN)
    (tmp_path / "2.csv").write_text(PLAIN.replace(",", ";"))
    assert read(f"{tmp_path}/*.csv") == {name: values * 2 for name, values in ROWS.items()}
    with pytest.raises(ParameterError, match=r"path must be a str or Path, such as .* a glob of"):
        scan_csv([tmp_path / "1.csv", tmp_path / "2.csv"])


def test_scan_parquet_of_csv_points_to_scan_csv(tmp_path):
    (tmp_path / "1.csv").write_text(PLAIN)
    with pytest.raises(SourceError, match=r"; scan_csv reads CSV files$"):
        scan_parquet(tmp_path / "1.csv")


def test_digits_that_begin_with_zero_stay_text(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('"zip",n,share,later\n00501,0,0.5,1\n10001,10,0.25,2\n,7,1,3\n')
    assert read(path) == {
        "zip": ["00501", "10001", None],
        "n": [0, 10, 7],
        "share": [0.5, 0.25, 1.0],
        "later": [1, 2, 3],
    }


def test_types_that_are_given_come_before_codes(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("zip\n00501\n10001\n")
    assert read(path, types={"zip": "int64"}) == {"zip": [501, 10001]}
