"""Damaged files and odd rules: a refusal of one line or a whole output, and no value is told."""

import pytest
from commands import EXPLAIN, RELEASE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CANARY = "zq7-canary-81"  # in a column of the table, and never to be seen again
MOST_WORDS = 4000  # bytes on standard error
COMMANDS = {
    "loans.veil": (("inspect", "loans.veil"), EXPLAIN),
    "model.pt2": (EXPLAIN,),
    "queries.csv": (EXPLAIN,),
    "rules.json": ((*EXPLAIN, "--rules", "rules.json"),),
    "schema.json": ((*RELEASE, "1", "--dry-run"), ("schema", "show", "schema.json")),
    "rows.csv": (
        (*RELEASE, "1", "--dry-run"),
        ("schema", "draft", "rows.csv", "--label", "loan", "--out", "new.json"),
    ),
}
RULES = b"""{"immutable": ["region"], "allowed": {"income": [0, 9]}, "max_changes": 3,
"costs": {"age": 2.0}, "steps": {"income": 0.5}, "relations": [["income", "<=", "age"]],
"together": [["age", "housing"]], "may_change": ["age", "income", "housing"]}"""


@st.composite
def damaged(draw, content):
    """The bytes of a file, cut, doubled, or with some of them replaced or put in."""
    at = draw(st.integers(0, len(content)))
    end = draw(st.integers(at, min(len(content), at + 200)))
    new = draw(
        st.one_of(
            st.binary(max_size=20),
            st.sampled_from([b"", b"\0", b"\xff\xfe", b'"', b"NaN", b"-1e309", b"[" * 500, b",\n"]),
            st.just(content[at:end] * 3),
        )
    )
    return content[:at] if draw(st.booleans()) and not new else content[:at] + new + content[end:]


@pytest.fixture
def files(world, rows):
    """The small project, whose table has a column that nobody may see."""
    rows.assign(note=CANARY).to_csv(world / "rows.csv", index=False)
    (world / "rules.json").write_bytes(RULES)
    return {name: (world / name).read_bytes() for name in COMMANDS}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_damage_is_refused_in_words(files, world, run, name, data):
    for each, content in files.items():
        (world / each).write_bytes(content)
    spoilt = data.draw(damaged(files[name]))
    (world / name).write_bytes(spoilt)
    code, _, told = run(*data.draw(st.sampled_from(COMMANDS[name])))
    assert code in {0, 2}
    assert (code == 0) or told.strip()
    assert "Traceback" not in told
    assert CANARY not in told
    assert len(told.encode()) < MOST_WORDS
    left = {each.name for each in world.iterdir()} - {*files, "new.json", "new.veil"}
    assert not [each for each in left if each.endswith((".tmp", ".part"))]
    for each, content in files.items():
        assert (world / each).read_bytes() == (spoilt if each == name else content)
