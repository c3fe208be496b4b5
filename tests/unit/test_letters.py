"""Letters, details and reasons: what is said is true, and said well."""

import re
from dataclasses import replace
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from rows import random_rows

from counterveil import Explainer, Rules
from counterveil.errors import RequestError, SchemaError
from counterveil.schema import Numeric, Schema
from counterveil.search.results.letters import Letters
from counterveil.search.results.reasons import QUANTILES
from counterveil.tables import file_content, plain_rows

NUMBER = re.compile(r"\d[\d.,]*\d|\d")


@pytest.fixture(scope="module")
def result(explainer, schema):
    queries = random_rows(schema, 80, seed=6)
    queries.index = pd.Index([f"P-{each}" for each in range(80)], name="customer")
    usual, strict = (
        Rules(immutable=held, max_changes=2) for held in (["member"], ["member", "income"])
    )
    rules = [usual] * 60 + [strict] * 20
    result = explainer.explain(queries, "granted", rules=rules, progress=False)
    assert {"found", "already", "not_found"} <= set(result.status)
    return result


def first(result, status):
    return int(np.flatnonzero(result.status == status)[0])


@pytest.mark.parametrize("language", ["en", "de"])
def test_no_number_of_a_letter_is_made_up(result, schema, language):
    for query in range(len(result)):
        known = {1, 2, 3, 4}  # of the lists
        rows = [plain_rows(frame)[query] for frame in (result.queries, result.rows)]
        known |= {value for row in rows for value in row.values()}
        known |= {float(f"{own:.4g}") for own in rows[0].values() if isinstance(own, float)}
        known |= {end for region in result.regions[query] for end in region.told or ()}
        for number in NUMBER.findall(result.letter(query, language)):
            marks = ",." if language == "en" else ".,"
            assert float(number.replace(marks[0], "").replace(marks[1], ".")) in known


def test_letters_of_every_status(result, schema):
    found = result.letter(first(result, "found"))
    assert found.startswith("Decision (loan): refused\n")
    assert "The decision would have been “granted” with" in found
    assert "We took as they are: region, member." in found
    assert "We took as they are: income, region, member." in result.letter(
        first(result, "not_found")
    )
    for word in ("model", "sure", "probability", "%", "people"):
        assert word not in found
    missing = result.letter(first(result, "not_found"))
    assert "and found none" in missing
    assert "have a person look" in missing
    already = result.letter(first(result, "already"))
    assert "Nothing needs to change" in already
    assert "reason" not in already
    proved = replace(result, status=np.array(["impossible"] * len(result)))
    assert "could not have been “granted”" in proved.letter(0)
    assert "nicht „granted“" in proved.letter(0, "de")
    assert "\n\n\n" not in found + missing + already + proved.letter(0)
    names = {"value_names": (("granted", "<b>yes & no</b>"),)}
    label = schema.label.model_copy(update=names)
    odd = replace(result, schema=schema.model_copy(update={"label": label}))
    page = odd.letter(first(result, "found"), "de", html=True)
    assert "&lt;b&gt;yes &amp; no&lt;/b&gt;" in page
    assert '<html lang="de">' in page


@pytest.mark.parametrize(
    ("template", "line"),
    [("\n\n{% if %}", 3), ("{{ decision }}\n{{ reasns }}", 2), ("{{ goal }}\n\n{{ 1 / 0 }}", 3)],
)
def test_a_mistake_in_a_template_names_file_and_line(result, tmp_path, template, line):
    path = tmp_path / "our letter.txt"
    path.write_text(template)
    with pytest.raises(RequestError, match=rf"our letter\.txt, line {line}: "):
        result.letter(0, template=path)


def test_a_template_of_ones_own(result, tmp_path, veil, schema):
    path = tmp_path / "mine.txt"
    path.write_text("{% for change in ways[0] %}{{ change.name }} {{ change.works }};{% endfor %}")
    query = first(result, "found")
    told = result.letter(query, template=path)
    assert all(column in told.lower() for column, *_ in result.changes_of(query))
    with pytest.raises(RequestError, match="no template"):
        result.letter(0, template=tmp_path / "none.txt")
    with pytest.raises(RequestError, match="there are: en, de"):
        result.letter(0, "fr")
    unasked = Explainer(veil, guidance="surrogate").explain(
        random_rows(schema, 2), "granted", progress=False
    )
    with pytest.raises(RequestError, match="was not asked"):
        unasked.letter(0)


def test_the_mail_merge_has_a_row_for_each_person(result):
    content = file_content(result.mail_merge(), "letters.csv", escape=True)
    table = pd.read_csv(StringIO(content.decode()), keep_default_na=False)
    assert table["customer"].tolist() == [*result.index]
    assert table["letter"].tolist() == [result.letter(query) for query in range(len(result))]
    query = first(result, "found")
    assert table["change_1"][query]
    assert table["reason_1"][query] in table["letter"][query]
    assert table["change_1"][first(result, "already")] == ""


def test_reasons_are_features_that_count_against_the_person(result):
    for query in result.found.tolist():
        reasons = result.reasons_of(query)
        assert {each.feature for each in reasons} <= {"income", "housing"}  # all that f looks at
        assert all(each.gain > 0 for each in reasons)
        assert [each.gain for each in reasons] == sorted((r.gain for r in reasons), reverse=True)
        own = plain_rows(result.queries)[query]["housing"] == "own"
        assert not (own and "housing" in [each.feature for each in reasons])


def test_reasons_of_an_additive_model_are_its_own_points(veil, schema):
    """Beside the points that people of the target class get on average for a feature."""
    explainer = Explainer(veil)
    queries = random_rows(schema, 40, seed=8)[[*schema.columns]]
    result = explainer.explain(queries, "granted", progress=False)
    population, place = veil.population(), schema.columns.index("income")
    places, shares = population.percentiles(place, 1)
    usual = 10 * np.interp((np.arange(QUANTILES) + 0.5) / QUANTILES, shares, places)
    odds = lambda rows: np.diff(np.log(explainer.decide(pd.DataFrame(rows))), axis=1)[:, 0]  # noqa: E731
    checked = 0
    for query in result.found.tolist():
        for reason in result.reasons_of(query):
            if reason.feature == "income":
                own = plain_rows(result.queries)[query]
                elsewhere = odds([{**own, "income": value} for value in usual.tolist()]).mean()
                assert reason.gain == pytest.approx(elsewhere - odds([own])[0], abs=1e-4)
                checked += 1
    assert checked > 5


def test_the_schema_words_reasons(schema):
    worded = Numeric(name="n", lower=0, upper=1, reason="Length of employment", reason_code="R7")
    again = Schema.from_json(Schema(label=schema.label, features=(worded,)).to_json())
    assert again.features[0].reason_code == "R7"
    with pytest.raises(SchemaError, match="reason"):
        Numeric(name="n", lower=0, upper=1, reason="two\nlines")


def test_details_tell_everything_and_travel(result):
    query = first(result, "found")
    told = result.details(query)
    for word in ("checked: exact", "log-odds", "Rule max_changes: 2", "Statement:", "stability"):
        assert word in told
    assert "Rule" in result.details(first(result, "not_found"))
    import pickle

    again = pickle.loads(pickle.dumps(result))
    some = result.only([5, 3])
    assert again.letter(3) == some.letter(1) == result.letter(3)
    assert again.region_of(5) == some.region_of(0) == result.region_of(5)
    assert Letters(again).text(5) == result.letter(5)
