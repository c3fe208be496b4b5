"""Numbers as printed in the paper (Yang et al. 2022), by table.

Its figures print no numbers, and of Table 4 the split between known and unknown architecture is
kept. `SAME_DATA` says where the rows behind both are the same published table, so that a number of
ours may be held against a printed one; `beside` finds the paper's dataset that one of ours stands
beside.
"""

from __future__ import annotations

SAME_DATA = ("adult", "hospital", "mnist", "purchase", "texas")
"""homecredit is a sample of 14.9 %, the two substitutes are other tables, digits is not in it."""

SAME_COLUMNS = ("mnist",)
"""Where the encoded columns are the paper's too, so that distances have the same units."""

# Table 1: instances, features, classes.
DATA: dict[str, tuple[str, str, str]] = {
    "adult": ("48,842", "24", "2"),
    "hospital": ("101,766", "127", "2"),
    "homecredit": ("344,971", "39", "2"),
    "mnist": ("70,000", "28 × 28", "10"),
    "purchase": ("197,324", "600", "100"),
    "texas": ("65,761", "3,622", "100"),
}

# Table 2: flipping ratio by method, (not specified, specified); None where the table has a dash.
_Pair = tuple[str, str | None]
FLIP: dict[str, dict[str, _Pair]] = {
    "dice-gradient": {
        "adult": ("0.972", None), "hospital": ("0.892", None), "homecredit": ("0.902", None),
        "mnist": ("0.812", "0.204"), "purchase": ("0.778", "0.056"),
        "texas": ("0.656", "0.018"),
    },
    "cadex-0": {
        "adult": ("0.926", None), "hospital": ("0.810", None), "homecredit": ("0.878", None),
        "mnist": ("0.724", "0.138"), "purchase": ("0.744", "0.028"),
        "texas": ("0.624", "0.012"),
    },
    "cchvae": {
        "adult": ("0.946", None), "hospital": ("0.838", None), "homecredit": ("0.862", None),
        "mnist": ("0.788", "0.412"), "purchase": ("0.822", "0.126"),
        "texas": ("0.728", "0.104"),
    },
    "revise": {
        "adult": ("0.902", None), "hospital": ("0.788", None), "homecredit": ("0.832", None),
        "mnist": ("0.682", "0.316"), "purchase": ("0.734", "0.166"),
        "texas": ("0.764", "0.138"),
    },
    "dpc-0.025": {
        "adult": ("0.918", None), "hospital": ("0.826", None), "homecredit": ("0.868", None),
        "mnist": ("0.756", "0.720"), "purchase": ("0.722", "0.382"),
        "texas": ("0.706", "0.370"),
    },
    "dpc-0.75": {
        "adult": ("0.968", None), "hospital": ("0.884", None), "homecredit": ("0.908", None),
        "mnist": ("0.790", "0.742"), "purchase": ("0.772", "0.406"),
        "texas": ("0.736", "0.402"),
    },
}  # fmt: skip

# Table 3: average distance; DPC at ε = 0.025.
DISTANCE: dict[str, dict[str, str]] = {
    "dice-gradient": {"adult": "1.32", "hospital": "2.51", "homecredit": "2.02", "mnist": "2.89",
                      "purchase": "2.90", "texas": "2.50"},
    "cadex-0": {"adult": "0.61", "hospital": "1.54", "homecredit": "1.23", "mnist": "1.81",
                "purchase": "1.70", "texas": "2.10"},
    "cchvae": {"adult": "1.66", "hospital": "2.68", "homecredit": "2.27", "mnist": "3.04",
               "purchase": "3.20", "texas": "2.70"},
    "revise": {"adult": "1.61", "hospital": "2.70", "homecredit": "2.19", "mnist": "3.09",
               "purchase": "3.30", "texas": "2.60"},
    "dpc-0.025": {"adult": "1.62", "hospital": "2.63", "homecredit": "2.25", "mnist": "2.99",
                  "purchase": "3.00", "texas": "2.60"},
}  # fmt: skip

# Table 4: accuracy (%) of the extracted model as "known/unknown architecture", for 250, 500, 1000
# and 2000 queries; DPC at ε = 0.025, non-DP by DiCE.
QUERIES = (250, 500, 1000, 2000)
EXTRACTION: dict[str, dict[str, tuple[str, str, str, str]]] = {
    "adult": {"non-dp": ("79.5/78.1", "80.1/79.0", "81.9/80.2", "83.1/81.7"),
              "dpc": ("73.1/72.3", "71.0/70.3", "68.9/67.1", "66.5/65.1")},
    "hospital": {"non-dp": ("64.3/63.1", "65.7/63.9", "66.7/64.8", "67.0/65.8"),
                 "dpc": ("61.3/59.8", "60.2/59.1", "58.9/57.7", "56.4/55.2")},
    "homecredit": {"non-dp": ("73.3/70.9", "74.8/72.5", "75.6/73.4", "76.0/74.8"),
                   "dpc": ("71.0/68.8", "70.1/66.9", "68.8/65.1", "66.5/62.7")},
    "mnist": {"non-dp": ("84.2/81.6", "85.0/83.1", "86.5/84.2", "87.1/84.9"),
              "dpc": ("81.0/78.3", "80.4/77.3", "78.2/74.8", "76.4/73.1")},
    "purchase": {"non-dp": ("56.1/53.6", "56.7/54.2", "57.3/54.9", "58.8/55.3"),
                            "dpc": ("55.4/53.0", "55.0/52.7", "54.6/52.1", "53.8/51.6")},
    "texas": {"non-dp": ("29.0/25.9", "29.3/26.2", "29.8/26.9", "30.2/28.6"),
                         "dpc": ("28.6/25.8", "28.2/25.2", "27.7/24.6", "27.1/24.1")},
}  # fmt: skip
BASE_EXTRACTION = {
    "adult": "75.2/73.6", "hospital": "61.0/59.9", "homecredit": "70.5/67.7", "mnist": "81.6/78.1",
    "purchase": "55.7/53.1", "texas": "28.6/25.9",
}  # fmt: skip
TARGET_ACCURACY = {
    "adult": "85.6", "hospital": "70.1", "homecredit": "77.9", "mnist": "90.8",
    "purchase": "71.3", "texas": "51.4",
}  # fmt: skip


def beside(dataset: str) -> str:
    """The paper's dataset in whose place ours stands."""
    return dataset.removesuffix("-substitute")


def same_data(dataset: str) -> bool:
    """Whether a printed number may be held against one of ours."""
    return dataset in SAME_DATA


def flip(method: str, dataset: str, specified: bool) -> str:
    """A flipping ratio of Table 2, "" where it has none."""
    pair = FLIP.get(method, {}).get(beside(dataset))
    return (pair[1 if specified else 0] or "") if pair else ""


def distance(method: str, dataset: str) -> str:
    """An average distance of Table 3, "" where it has none."""
    return DISTANCE.get(method, {}).get(beside(dataset), "")


def dpc(mechanism: str | None, guidance: str | None, epsilon: float | None) -> str:
    """The paper's column that a way of ours stands beside: DPC consults f, at two ε."""
    if mechanism not in {"paper", "functional"} or guidance == "surrogate":
        return ""
    if epsilon not in {0.025, 0.75}:
        return ""
    return f"dpc-{epsilon:g}"


def extraction(dataset: str, column: str, architecture: str, queries: int | None) -> str:
    """An accuracy (%) of Table 4; `column` is base, non-dp or dpc."""
    if column == "base":
        both = BASE_EXTRACTION.get(beside(dataset), "")
    elif queries in QUERIES:
        both = EXTRACTION.get(beside(dataset), {}).get(column, ("",) * 4)[QUERIES.index(queries)]
    else:
        both = ""
    return both.split("/")[1 if architecture == "unknown" else 0] if both else ""
