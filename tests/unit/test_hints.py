"""What messages say of names, and how long they may be."""

import pandas as pd
import pytest

from counterveil.encoding import Encoding
from counterveil.errors import MOST_LETTERS, DataError, RequestError, SchemaError
from counterveil.hints import did_you_mean, named, spelt_otherwise
from counterveil.schema import Binary, Label, Numeric, Schema
from counterveil.search import Rules
from counterveil.search.paper.algorithm2 import select_targets
from counterveil.terminal import complain


def test_long_lists_say_that_they_were_cut():
    assert named("ab") == "a, b"
    assert named(range(12)).endswith("10, 11")
    assert named(range(13)).endswith("11, … (1 more)")
    assert len(named(["x" * 10**6] * 12)) < 600


def test_the_name_that_was_meant():
    assert did_you_mean("agee", ["age", "income"]) == "; did you mean 'age'?"
    assert did_you_mean(" AGE", ["income", "age"]) == "; did you mean 'age'?"
    assert did_you_mean("sex", ["age", "income"]) == ""
    assert did_you_mean("x" * 10**6, ["y" * 10**6] * 3) == ""
    assert did_you_mean(3, [1, 2]) == ""


def test_unknown_names_come_with_a_hint():
    features = tuple(Binary(name=f"bit{number}") for number in range(20))
    wide = Schema(label=Label(name="y", classes=("no", "yes")), features=features)
    with pytest.raises(RequestError, match=r"no feature 'bit99'; .*… \(8 more\); did you mean"):
        Rules(immutable=["bit99"]).tighten(wide)
    with pytest.raises(SchemaError, match="did you mean 'bit7'"):
        wide.feature("Bit7")
    with pytest.raises(RequestError, match="did you mean 'max_changes'"):
        Rules.of_mapping({"max_change": 1})
    with pytest.raises(RequestError, match=r"no class 'Yes'; .*; did you mean 'yes'"):
        select_targets([[0.0, 1.0]], "Yes", Label(name="y", classes=("no", "yes")))


def test_a_missing_column_quotes_no_other_name_of_a_private_table():
    number = Numeric(name="age", lower=0, upper=1)
    schema = Schema(label=Label(name="y", classes=(0, 1)), features=(number,))
    with pytest.raises(DataError, match="'age' is missing from the table; it has 'Age '"):
        Encoding(schema, private=True).encode(pd.DataFrame({"Age ": [1]}))
    with pytest.raises(DataError) as refused:
        Encoding(schema, private=True).encode(pd.DataFrame({"aged": [1], "a private value": [2]}))
    assert "aged" not in str(refused.value)
    assert spelt_otherwise("age", [1, None]) == ""


def test_messages_are_never_long(capsys):
    error = RequestError(f"no file {'x' * 10**6}; check the path")
    assert len(str(error)) <= MOST_LETTERS
    assert str(error).endswith("x; check the path")
    assert str(error).startswith("no file xxx")
    complain("error: ", "y" * 10**6, "red")
    assert len(capsys.readouterr().err) < MOST_LETTERS + 20
