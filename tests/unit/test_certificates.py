"""Certificates: a fresh one holds, one of which anything was changed does not."""

import copy
import json

import pytest
from boosters import classifier, package_of, saved
from sklearn.linear_model import LogisticRegression
from skops import io as skops_io

from counterveil import Explainer, Rules
from counterveil.encoding import Encoding
from counterveil.errors import RequestError
from counterveil.models import ModelFile, save_exported
from counterveil.search.results.certificate import Certificate, save_certificates
from counterveil.signature import SigningKey

KEY, OTHER = SigningKey.new("Desk 7"), SigningKey.new("Desk 8")
RULES = Rules(immutable=["member"], allowed={"income": (0, 9)}, max_changes=3)


@pytest.fixture(scope="module")
def model_file(model, schema, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.pt2"
    save_exported(model, schema, path)
    return path


@pytest.fixture(scope="module")
def explains(veil, model_file):
    return Explainer(veil, model_file)


@pytest.fixture(scope="module")
def queries(rows):
    return rows[rows.loan == "refused"].drop(columns="loan").head(12).reset_index(drop=True)


@pytest.fixture(scope="module")
def result(explains, queries):
    return explains.explain(queries, "granted", rules=RULES, k=2, prefer="nearest")


@pytest.fixture
def made(result):
    """An answer, and its certificate."""
    query = int(result.found[0])
    return query, result.certificate(query, key=KEY)


def changed(certificate, change):
    """The certificate with other content, and the signature that it had."""
    content = copy.deepcopy(certificate.content)
    change(content)
    return Certificate(content, certificate.signature)


def holds(explains, certificate, row, **more):
    verdict = explains.verify(Certificate.of_text(certificate.text), row, **more)
    assert verdict.complete == verdict.holds
    return verdict.holds


def models_of(schema, rows, folder):
    """Files of models that were fitted on these rows, and how to open them."""
    encoded, numbers = Encoding(schema).encode(rows), (rows.loan == "granted").astype(int)
    skops_io.dump(LogisticRegression().fit(encoded, numbers), folder / "m.skops")
    yield ModelFile(folder / "m.skops", {"classes": ["refused", "granted"]})
    trees = classifier(package_of("lightgbm")).fit(encoded, numbers)
    path = next(saved(trees, folder))
    yield ModelFile(path, {"classes": ["refused", "granted"], "inputs": "encoding"})


def test_fresh_ones_hold(explains, result, queries):
    for query in result.found.tolist():
        for answer in range(2):
            if result.valid[result.at(query, answer)]:
                certificate = result.certificate(query, answer, KEY)
                assert holds(explains, certificate, queries, trusted=[KEY.public])
                assert holds(explains, certificate, queries.loc[[query]], rules=RULES)


@pytest.mark.long
def test_of_every_kind_of_model(veil, schema, rows, queries, model, tmp_path):
    given = [*models_of(schema, rows, tmp_path), None, veil.model("even"), model]
    explainers = [Explainer(veil, each) for each in given]
    explainers.append(Explainer(veil, guidance="surrogate"))
    kinds = []
    for explains in explainers:
        result = explains.explain(queries.head(4), "granted")
        certificate = result.certificate(int(result.found[0]))
        kinds.append(certificate.content["model"]["kind"])
        assert holds(explains, certificate, queries)
        for other in explainers:
            same = other._builder.origin == explains._builder.origin
            # A model in memory is known by its answers alone.
            is_asked = kinds[-1] == "in memory" and other._builder.model["kind"] == "file"
            verdict = other.verify(certificate)
            assert verdict.holds == (same or is_asked), verdict.text
            assert not verdict.complete
    assert kinds == ["file"] * 2 + ["private model"] * 2 + ["in memory", "stand-in"]


def test_what_was_changed_is_refused(explains, made, queries):
    query, certificate = made
    row = queries.loc[[query]]
    income = next(c for c in certificate.content["changes"] if c["column"] == "income")
    at = certificate.content["changes"].index(income)
    high = {"column": "income", "low": income["to"], "high": 9.0, "checked": "exact"}

    def answer(content):
        content["changes"][at]["to"] = income["from"] + 0.001

    cases = {
        "the answer: the model decides refused": answer,
        "is not": lambda c: c["changes"][at].update({"from": 0.123}),
        "the schema does not allow": lambda c: c["changes"][at].update(to=11.0),
        "breaks the rule allowed": lambda c: c["changes"][at].update(to=9.5),
        "breaks the rule max_changes": lambda c: (
            c["rules"].update(max_changes=1),
            c["changes"].append({"column": "age", "from": int(row.age.iloc[0]), "to": 100}),
        ),
        "breaks the rule immutable": lambda c: c["rules"].update(immutable=["income", "member"]),
        "changes nothing": lambda c: c.update(changes=[]),
        "the model": lambda c: c["model"].update(sha256="0" * 64),
        "the veil": lambda c: c.update(veil="0" * 64),
        "decides refused, not granted": lambda c: c.update(before="granted"),
        "decides granted, not refused": lambda c: c.update(asked_for="refused"),
        "another row": lambda c: c["query"].update(salt="0" * 32),
        "at 9.5: it breaks": lambda c: c.update(region=[{**high, "high": 9.5}]),
        "at 0.0: the model": lambda c: c.update(region=[{**high, "low": 0.0}]),
        "lies outside": lambda c: c.update(region=[{**high, "low": 9.0}]),
        "not that of an answer": lambda c: c.update(region=[{"column": "income"}]),
        "its content": lambda c: c["rules"].update(nonsense=1),
    }
    for words, change in cases.items():
        verdict = explains.verify(changed(certificate, change), row)
        assert "signature" in verdict.refusals[0], words  # whatever was changed
        without = changed(certificate, lambda c: c.update(region=[]))
        unsigned = Certificate(changed(without, change).content)
        verdict = explains.verify(unsigned, row)
        assert words in verdict.text
        assert not verdict.holds
    good = changed(certificate, lambda c: c.update(region=[high]))
    assert holds(explains, Certificate(good.content), row)


def test_signatures(explains, made, queries, veil):
    _, certificate = made
    unsigned = Certificate(certificate.content)
    assert "trusted" in explains.verify(certificate, queries, trusted=[KEY.public]).text
    assert "unsigned" in explains.verify(unsigned, queries).text
    assert "no trusted key" in explains.verify(certificate, trusted=[OTHER.public]).text
    assert "there is none" in explains.verify(unsigned, trusted=[KEY.public]).text
    as_veil = Certificate(certificate.content, KEY.sign(certificate.signed_bytes))
    assert "not one under this" in explains.verify(as_veil, queries).text
    other_rules = explains.verify(certificate, queries, rules=Rules(max_changes=2))
    assert other_rules.refusals == ("the rules: the certificate names others than those given",)


def test_one_way_of_writing(made, result, tmp_path):
    _, certificate = made
    assert Certificate.of_text(certificate.text) == certificate
    assert json.loads(certificate.text)["changes"] == certificate.content["changes"]
    pretty = json.dumps(json.loads(certificate.text), indent=1)
    more = certificate.text.replace('{"asked_for"', '{"a":1,"asked_for"')
    twice = certificate.text.replace('{"asked_for"', '{"asked_for":"refused","asked_for"')
    for text in ("", "{}", "[]", "null", "x", pretty, more, twice, '{"format":' * 9):
        with pytest.raises(RequestError, match="no certificate"):
            Certificate.of_text(text)
    save_certificates(result, tmp_path / "all.jsonl", KEY)
    save_certificates(result, tmp_path / "each")
    assert len(Certificate.load(tmp_path / "all.jsonl")) == result.answers
    assert len([*(tmp_path / "each").glob("query-*-answer-*.json")]) == result.answers
    missing = next(at for at in range(len(result.status)) if not result.valid[at])
    with pytest.raises(RequestError, match="no answer"):
        result.certificate(*divmod(missing, 2))


def test_rules_are_written_in_one_way(schema):
    rules = {
        "allowed": {"housing": {"rent", "own"}, "age": (30, 40.5)},
        "relations": ["income <= children + 1", ("debt", "<=", "income")],
        "transitions": {"member": [["yes", "no"], ["no", "yes"]]},
        "immutable": ["region", "degree"],
        "costs": {"age": 2},
    }
    told = Rules(**rules).to_dict(schema)
    assert Rules.of_mapping(json.loads(json.dumps(told))).to_dict(schema) == told
    assert told["allowed"] == {"age": [30, 40.5], "housing": ["own", "rent"]}
    assert told["relations"][0] == ["income", "<=", "children", 1.0]
    assert Rules().to_dict(schema) == {}
    for unknown in (["y", "x", "z"], {"z", "x", "y"}):  # the same one is named in every process
        with pytest.raises(RequestError, match="no feature 'x'"):
            Rules(immutable=unknown).tighten(schema)
