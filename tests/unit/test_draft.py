import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterveil.curator import Curator, column_names
from counterveil.curator.infer_schema import draft_schema, read_for_draft
from counterveil.encoding import Encoding
from counterveil.errors import DataError
from counterveil.schema import Schema

ROWS = 300
DAYS = pd.date_range("2020-01-01", periods=ROWS)


def test_a_draft_fits_its_table_and_says_what_it_is(rows):
    schema = draft_schema(rows, "loan").schema
    assert schema.drafted
    assert "DRAFT" in schema.note
    Encoding(schema).encode(rows)
    Encoding(schema).labels(rows)
    kinds = {feature.name: feature.kind for feature in schema.features}
    assert kinds["age"] == "numeric"
    assert kinds["housing"] == kinds["region"] == "categorical"
    assert kinds["member"] == "binary"
    assert schema.feature("children").integer
    assert schema.feature("children").missing
    assert Schema.from_json(schema.to_json()) == schema
    veil = Curator(schema).release(rows, 1, epochs=1, progress=False)
    assert any("draft" in words for words in veil.statement.reasons)


def drafted(**columns):
    """The draft of a table with these columns and a label; `y` is the label."""
    frame = pd.DataFrame({**columns, "y": ["a", "b"] * (ROWS // 2)}, index=range(ROWS))
    draft = draft_schema(frame.assign(other=np.arange(ROWS) % 7 / 2), "y")
    Encoding(draft.schema).encode(frame.assign(other=np.arange(ROWS) % 7 / 2))
    return draft


def test_kinds_of_columns():
    schema = drafted(
        bit=[0, 1] * 150, flag=[True, False] * 150, share=[0.1, 0.2, None] * 100,
        one_or_missing=[3, None, 3] * 100, said=["Yes", "No"] * 150,
        found=["present", "absent"] * 150,
    ).schema  # fmt: skip
    assert schema.feature("bit").values == (0, 1)
    assert schema.feature("flag").values == (False, True)
    assert schema.feature("share").missing
    assert schema.feature("one_or_missing").categories == (3,)
    assert schema.feature("said").values == ("No", "Yes")  # no comes before yes
    assert schema.feature("found").values == ("absent", "present")


@pytest.mark.parametrize(
    ("name", "cells", "words"),
    [
        ("x", [3] * ROWS, "is constant"),
        ("x", [None] * ROWS, "is constant"),
        ("x", [2.5, None] * 150, "is constant"),
        ("x", DAYS.strftime("%Y-%m-%d"), "holds dates; to use them, make them a number"),
        ("x", DAYS, "holds dates"),
        ("x", [pd.Timestamp("2020-01-01"), pd.NaT] * 150, "holds dates"),
        ("x", [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)] * 150, "holds dates"),
        ("x", DAYS.strftime("%d.%m.%Y"), "holds dates"),
        *(("x", DAYS.strftime(form), "holds dates") for form in (
            "%m/%d/%y %H:%M", "%b %d, %Y", "%d-%B-%Y", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m")),
        ("x", DAYS.strftime("%Y%m%d").astype(int), "holds dates, written as whole numbers"),
        ("x", [1e300, 2.0] * 150, "beyond 1e15"),
        ("x", [float("inf"), 2.0] * 150, "infinite"),
        ("x", ["old", 2.0] * 150, "mixes numbers and texts"),
        ("x", [[1], [2]] * 150, "something else than numbers"),
        ("x", [f"id {i}" for i in range(150)] + [None] * 150, "nearly every row: an identifier"),
        ("x", [f"text {i % 280}" for i in range(ROWS)], "nearly every row"),
        ("x", [f"text {i % 220}" for i in range(ROWS)], "over 200 different values; group them"),
        ("note", [f"complained about {i % 50} and went home again" * 2 for i in range(ROWS)],
         "free text"),
        ("x", range(1000, 1000 + ROWS), "numbers the rows"),
        ("x", [10**9 + 7919 * i for i in range(ROWS)], "is an identifier"),
        ("patient_id", [i // 3 for i in range(ROWS)], "name it in the release"),
        ("PatientNbr", [i // 3 for i in range(ROWS)], "is an identifier"),
        ("customerid", [f"C{i // 3}" for i in range(ROWS)], "is an identifier"),
        ("e-mail", [f"p{i // 2}@x.org" for i in range(ROWS)], "is an identifier"),
        ("amount", [f"{1000 + i:,}" for i in range(ROWS)], "write them as plain numbers, 1234.5"),
        ("amount", [f"{i % 9}.{i:03},50" for i in range(ROWS)], "plain numbers"),
        ("rate", [f"{i % 9} %" for i in range(ROWS)], "plain numbers"),
        ("price", [f"€ {i % 9}.50" for i in range(ROWS)], "plain numbers"),
        ("zip", [10000 + 7 * i for i in range(ROWS)], "over 200 different values"),
    ],
)  # fmt: skip
def test_columns_that_are_left_out(name, cells, words):
    assert words in drafted(**{name: cells}).left_out[name]


@pytest.mark.parametrize(
    ("name", "cells", "kind"),
    [
        ("zip", [f"0{1000 + i % 9}" for i in range(ROWS)], "categorical"),
        ("zip", [1000 + i % 9 for i in range(ROWS)], "categorical"),
        ("x", ["A11", "A12", "A13"] * 100, "categorical"),
        ("icd", ["250.83", "V27", "414"] * 100, "categorical"),
        ("branch", [101, 204, 307] * 100, "categorical"),
        ("x", [101, 204, 307] * 100, "categorical"), ("branch_id", [1, 2, 3] * 100, "categorical"),
        ("SEX", [1, 2] * 150, "binary"), ("x", [1, 2] * 150, "binary"),
        ("smoker", ["Yes", "no"] * 150, "binary"), ("grade", ["1", "2", "3"] * 100, "categorical"),
        ("age", [i % 70 + 18 for i in range(ROWS)], "numeric"),
        ("age", [f"{i % 70 + 18}" for i in range(ROWS)], "numeric"),
        ("loan", [1000, 5000, 10000] * 100, "numeric"), ("rooms", [1, 2, 3] * 100, "numeric"),
        ("days_since_phone", [i % 250 for i in range(ROWS)], "numeric"),
        ("year_built", [1900 + i % 120 for i in range(ROWS)], "numeric"),
        ("income", [20_000 + 37 * i for i in range(ROWS)], "numeric"),
        ("age_group", [1, 2, 3] * 100, "categorical"),
    ],
)  # fmt: skip
def test_codes_and_amounts(name, cells, kind):
    assert drafted(**{name: cells}).schema.feature(name).kind == kind


def test_a_person_is_told_what_to_decide():
    draft = drafted(
        age=[i % 70 + 18 for i in range(ROWS)], sex=["f", "m"] * 150,
        income=[1000 * (i % 90) for i in range(ROWS)], region=[1, 2, 3] * 100,
        rooms=[1, 2, 3] * 100, smoker=["yes", "Yes", "no"] * 100,
        pressure=[90 + i % 80 if i % 20 else 999 for i in range(ROWS)],
        weight=[80.5 + i if i % 3 == 0 else None for i in range(ROWS)],
        marital_status=["single", "married", "widowed"] * 100,
    )  # fmt: skip
    assert draft.schema.feature("sex").immutable
    assert draft.schema.feature("age").immutable
    assert draft.schema.feature("income").step is None  # a step is for a person to choose
    for words in (
        "bounds of age, income, rooms, pressure, weight, other",
        "categories of sex, region, smoker, marital_status",
        "immutable, as the name says something personal: age, sex, region (residence)",
        "better for the person, as the name says: income (up)",
        "region: numbers taken for codes",
        "rooms: taken for amounts",
        "1,000 for income",
        "smoker: texts that differ in capitals",
        "pressure: nines at one end",
        "weight: most cells are empty",
    ):
        assert any(words in each for each in draft.decisions), words
    for words in ("--", '"'):  # the page shows them, too: it has neither options nor a file
        assert not any(words in each for hints in draft.hints.values() for each in hints)


def test_a_step_is_found_just_below_a_power_of_ten():
    draft = drafted(x=[0.0, 499999999999999.0] * 150)
    assert any("steps that would suit people" in each for each in draft.decisions)


def test_names_of_columns():
    assert column_names.words_of("PatientID of_clinic-2") == {"patient", "id", "of", "clinic"}
    assert not column_names.names_an_identifier("number_of_loans")
    assert not column_names.names_an_identifier("paid")
    assert column_names.names_a_code("income_band")
    assert column_names.like_a_label("loan_status") > column_names.like_a_label("marital_status")


@pytest.mark.parametrize(
    ("said", "meaning", "names"),
    [
        ("personal_attribute", "sex", "sex Gender applicant_gender isFemale GESCHLECHT"),
        ("personal_attribute", "race", "race ethnicity EthnicGroup skin_color ethnie"),
        ("personal_attribute", "nationality",
         "nationality native-country country_of_origin Staatsangehörigkeit"),
        ("personal_attribute", "religion", "religion konfession"),
        ("personal_attribute", "age",
         "age AGE age_group ageOfApplicant alter dob birth_year DateOfBirth geburtsjahr"),
        ("personal_attribute", "birthplace", "birthplace geburtsort"),
        ("personal_attribute", "residence", "region postcode ZipCode home_postal_code PLZ Wohnort"),
        ("personal_attribute", "family",
         "marital_status MaritalStatus marital-status relationship married familienstand"),
        ("personal_attribute", "disability", "disability is_disabled Behinderung"),
        ("personal_attribute", None,
         "car_age account_age language stage average wage package Essex racecourse embrace income "
         "family_income family_size original issue_date dobson message page"),
        ("better_way", "up",
         "income MonthlyIncome savings_balance base_salary jahreseinkommen_gehalt"),
        ("better_way", "down",
         "debt balance_owed times_late days_overdue arrears schulden missed_payments"),
        ("better_way", None,
         "late_shift debt_to_income income_tax days_since_arrears debt_free income_band"),
    ],
)  # fmt: skip
def test_what_names_say(said, meaning, names):
    found = {name: getattr(column_names, said)(name) for name in names.split()}
    assert set(found.values()) == {meaning}, found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loan": "granted"}, "one class only"),
        ({"loan": [0.5, 1.5] * 300}, "numbers with decimals"),
        ({"loan": pd.date_range("2020-01-01", periods=600)}, "label 'loan' holds dates"),
        ({"loan": ["a", 1] * 300}, "label 'loan' mixes numbers and texts"),
        ({"loan": [None, *["a", "b"] * 299, "a"]}, "row 1, column 'loan': the label is missing"),
    ],
)
def test_labels_that_are_no_classes(rows, change, words):
    with pytest.raises(DataError, match=words):
        draft_schema(rows.assign(**change), "loan")


def test_a_label_is_suggested(rows):
    frame = rows.rename(columns={"loan": "decision"})
    for label in (None, "lone"):
        with pytest.raises(DataError, match=r"it may be 'decision' \(2 classes\)"):
            draft_schema(frame, label)
    with pytest.raises(DataError, match=r"it may be the last column \(2 classes\)"):
        draft_schema(rows, None)
    with pytest.raises(DataError, match=r"; it has 'loan'$"):
        draft_schema(rows, "Loan")
    with pytest.raises(DataError, match=r"Give --label$"):
        draft_schema(rows[["age", "income"]], None)
    no_header = pd.DataFrame({"52": [1.5, 2.5] * 20, "default": ["default", "paid"] * 20})
    with pytest.raises(DataError) as refused:
        draft_schema(no_header, None)
    assert "default" not in str(refused.value)
    many = draft_schema(rows.assign(loan=list(range(600))), "loan")
    assert len(many.schema.label.classes) == 600


def test_columns_that_are_not_there(rows):
    with pytest.raises(DataError, match="no column 'x'"):
        draft_schema(rows, "loan", exclude=["x"])
    with pytest.raises(DataError, match="empty"):
        draft_schema(rows.head(0), "loan")
    with pytest.raises(DataError, match="no column of the table can be a feature"):
        draft_schema(rows[["loan", "age"]], "loan", exclude=["age"])
    nameless = draft_schema(rows.rename(columns={"age": 7, "income": ""}), "loan")
    assert nameless.left_out.keys() == {"column 1", "column 2"}


def test_codes_of_a_csv_keep_their_zeros(tmp_path):
    lines = "".join(f"0{number % 3},{number % 5},{number % 2}\n" for number in range(60))
    (tmp_path / "t.csv").write_text(f"ward,rooms,y\n{lines}")
    schema = draft_schema(read_for_draft(tmp_path / "t.csv"), "y").schema
    assert schema.feature("ward").categories == ("00", "01", "02")
    assert schema.feature("rooms").kind == "numeric"
    assert schema.label.classes == (0, 1)


def constant(column):
    known = column.dropna()
    if known.nunique() == 1 and len(known) < len(column):
        return not isinstance(known.iloc[0], str) and float(known.iloc[0]) % 1 != 0
    return known.nunique() < 2


COLUMNS = st.sampled_from(
    [
        st.booleans(), st.integers(0, 1), st.integers(-(10**15), 10**15),
        st.floats(-1e15, 1e15, allow_nan=False),
        st.decimals(-1000, 1000, places=2, allow_nan=False).map(Decimal),
        st.sampled_from(["a", "b", "[/b]", "ü", "1", "True"]), st.sampled_from([0.5, 1.0]),
    ]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_draft_fits_its_own_table(data):
    rows = data.draw(st.integers(2, 9))
    columns = {}
    for name in ("p", "q"):
        values = data.draw(COLUMNS)
        values = st.one_of(values, values, st.none()) if data.draw(st.booleans()) else values
        columns[name] = pd.Series(data.draw(st.lists(values, min_size=rows, max_size=rows)))
    frame = pd.DataFrame(columns).assign(y=[True, False] + [True] * (rows - 2))
    out = {name for name in ("p", "q") if constant(frame[name])}
    if len(out) == 2:
        with pytest.raises(DataError, match="constant"):
            draft_schema(frame, "y")
        return
    draft = draft_schema(frame, "y")
    assert draft.left_out.keys() == out
    schema = draft.schema
    Encoding(schema).encode(frame)
    Encoding(schema).labels(frame)
    assert Schema.from_json(schema.to_json()) == schema
