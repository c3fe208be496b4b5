"""Commands that several tests start from, and what a refusal looks like."""

RELEASE = (
    *("release", "--data", "rows.csv", "--schema", "schema.json", "--out", "new.veil"),
    *("--epochs", "1", "--epsilon"),
)
EXPLAIN = (
    *("explain", "--veil", "loans.veil", "--model", "model.pt2", "--queries", "queries.csv"),
)


def assert_refused(answer, words):
    code, _, err = answer
    errors = [line for line in err.splitlines() if not line.startswith("warning:")]
    assert code == 2, err
    assert len(errors) == 1, err
    assert errors[0].startswith("error: ")
    assert words in errors[0]
    assert "Traceback" not in err
