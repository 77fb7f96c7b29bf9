"""Plain data are parsed within limits and checked by schemas that name the field."""

from dataclasses import dataclass

import pytest

from parkrr.persistence.plain_data import check_schema, define, define_like, parse_json


@dataclass
class Settings:
    rows: int
    scale: float
    label: str = "none"


SETTINGS = define_like(Settings, {})
NESTED = define("nested", name=str, settings=list[SETTINGS])


def test_a_text_becomes_an_object():
    assert parse_json('{"a": [1, 0.5, "x", null, true]}', 100) == {"a": [1, 0.5, "x", None, True]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "must be an object"),
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ('{"a": {"b": 1, "b": 1}}', "'b' is there twice"),
        ('{"a": NaN}', "must be finite"),
        ('{"a": 9223372036854775808}', "fit 64 bits"),
        ('{"a": "\\ud800"}', "surrogates"),
    ],
)
def test_a_text_that_is_no_plain_object_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_json(text, 100)


def test_a_text_that_would_take_far_more_memory_than_its_file_is_refused():
    text = '{"a": [' + "[]," * 2_000_000 + "[]]}"
    with pytest.raises(ValueError, match="would take"):
        parse_json(text, len(text))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"rows": 1, "scale": "x", "label": ""}, "s.scale must be float, got 'x'"),
        ({"rows": True, "scale": 1.0, "label": ""}, "s.rows must be int, got True"),
        ({"rows": 1.0, "scale": 1.0, "label": ""}, "s.rows must be int, got 1.0"),
        ({"rows": 1, "scale": 1.0}, "s must have 'label'"),
        ({"rows": 1, "scale": 1.0, "label": "", "more": 0}, "s cannot have 'more'"),
        (7, "s must be object, got 7"),
    ],
    ids=str,
)
def test_data_that_break_a_schema_are_refused_by_field_and_value(data, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        check_schema("s", data, SETTINGS)


def test_a_field_inside_of_a_list_is_named_with_its_place():
    data = {"name": "x", "settings": [{"rows": 1, "scale": None, "label": ""}]}
    with pytest.raises(ValueError, match=r"^n.settings\[0\].scale must be float, got None$"):
        check_schema("n", data, NESTED)


def test_a_whole_number_is_a_float_too():
    check_schema("s", {"rows": 1, "scale": 2, "label": ""}, SETTINGS)


def test_a_message_stays_short():
    data = {"rows": 1, "scale": 1.0, "label": "", "x" * 10_000: 0}
    with pytest.raises(ValueError, match="cannot have") as caught:
        check_schema("s", data, SETTINGS)
    assert len(str(caught.value)) < 200
