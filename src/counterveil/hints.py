"""What a message says of names: some of those that there are, and the one that was meant."""

import difflib
from collections.abc import Collection, Sequence
from typing import Any

MOST = 12  # names in a list
LONGEST = 40  # letters of a name in a list
COMPARED = 1000  # names among which a similar one is looked for


def named(values: Collection[Any]) -> str:
    """The first dozen of `values` for a message, and how many more there are.

    >>> named(range(15))
    '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … (3 more)'
    """
    first = [short(str(value)) for value, _ in zip(values, range(MOST), strict=False)]
    more = len(values) - len(first)
    return ", ".join(first) + (f", … ({more} more)" if more > 0 else "")


def either(names: Sequence[str], word: str = "or") -> str:
    """The names as alternatives, or with another word before the last.

    >>> either([".csv", ".parquet", ".json"])
    '.csv, .parquet or .json'
    """
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def did_you_mean(name: Any, known: Collection[Any]) -> str:
    """ "; did you mean 'age'?" where one of the `known` names is like `name`; otherwise nothing.

    >>> did_you_mean("agee", ["age", "income"])
    "; did you mean 'age'?"
    """
    near = like(name, known)
    return "" if near is None else f"; did you mean {near!r}?"


def like(name: Any, known: Collection[Any]) -> str | None:
    """The one of the `known` names that is like `name`; None where there is none."""
    known = [str(each) for each, _ in zip(known, range(COMPARED), strict=False)]
    texts = {text.strip().casefold(): text for text in known if len(text) <= LONGEST}
    near = difflib.get_close_matches(str(name)[:LONGEST].strip().casefold(), texts, 1)
    return texts[near[0]] if near else None


def spelt_otherwise(name: str, present: Collection[Any]) -> str:
    """ "; it has 'Age'" where `present` has `name` but for spaces and capitals; otherwise nothing.

    For the columns of private tables: no other name may be quoted, because the first row of a table
    without a header is taken for one.
    """
    wanted = name.strip().casefold()
    same = [each for each in present if str(each).strip().casefold() == wanted]
    return f"; it has {same[0]!r}" if same else ""


def short(name: str) -> str:
    """`name`, cut where it is long."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
