"""Pairs of neighbouring tables that are as far apart as neighbours can be.

Each pair moves the exact sums by as much as their stated sensitivity allows, or touches a rule that
is easy to get wrong. The tables are tiny: the adversary knows all other records, so more of them
would not help it, and the noise does not depend on them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from counterveil.audit.pair import Pair
from counterveil.encoding import Array
from counterveil.privacy import Budget
from counterveil.schema import Binary, Categorical, Feature, Label, Numeric, Pixels, Schema

CLASSES = ("no", "yes")
Record = dict[str, Any]


def one_feature() -> Pair:
    """The worst pair: a single table of counts, in which one record moves to another cell."""
    first, second = {"x": "a", "label": "no"}, {"x": "b", "label": "yes"}
    return pair_of("one feature", _letters("x"), _spread("x"), first, second)


def wide() -> Pair:
    """Eleven features, all of which change together with the class."""
    names = [f"x{number}" for number in range(11)]
    first, second = _record(names, "a" * 11, "no"), _record(names, "c" * 11, "yes")
    return pair_of("eleven features", _letters(*names), _spread(*names), first, second, order=1)


def what_goes_together() -> Pair:
    """Order 2: the replaced record breaks a dependence of x on z and makes one of y on z."""
    features = [*_letters("x", "y"), Numeric(name="z", lower=0, upper=8)]
    cells = [("abc"[row % 3], "abc"[row // 3 % 3], float(row % 3 * 3)) for row in range(12)]
    others = [_record("xyz", each, CLASSES[row % 2]) for row, each in enumerate(cells)]
    first, second = _record("xyz", ("a", "b", 0.0), "no"), _record("xyz", ("c", "c", 8.0), "yes")
    return pair_of("order 2", features, others, first, second, order=2)


def counted_pairs() -> Pair:
    """The same as for so many rows that pairs are counted: they follow from the noisy moments."""
    return replace(what_goes_together(), name="order 2, pairs", planned=10_000_000)


def wide_pairs() -> Pair:
    """Order 2 on twelve features, all of which change together with the class."""
    pair = wide()
    features = [*pair.schema.features, *_letters("x11")]
    one, two = (table.assign(x11=table["x0"]) for table in (pair.one, pair.two))
    name, schema = "twelve features, order 2", schema_of(*features)
    return replace(pair, name=name, schema=schema, one=one, two=two, order=2)


def moments() -> Pair:
    """Four features go together; the replaced record turns around how two go with the other two."""
    names = [f"x{number}" for number in range(4)]
    others = [_record(names, "abca"[row % 4] * 4, CLASSES[row % 2]) for row in range(12)]
    first, second = _record(names, "aaaa", "no"), _record(names, "acac", "no")
    return pair_of("moments", _letters(*names), others, first, second, order=2)


def long_rows() -> Pair:
    """Three features in any combination; the replaced record changes all of them, and its class.

    Its scores are longer than the public norm before and after, and are cut: by itself alone.
    """
    features, others = _combinations(3)
    names = [feature.name for feature in features]
    first, second = _record(names, "ccc", "no"), _record(names, "bab", "yes")
    return pair_of("long rows", features, others, first, second, order=2)


def chosen_pairs() -> Pair:
    """Eight features, as for so many rows that most of their pairs are counted, and some are not.

    Which ones follows from the noisy moments. The others are so many that the noise leaves some.
    """
    features, others = _combinations(8)
    names = [feature.name for feature in features]
    first, second = _record(names, "c" * 8, "no"), _record(names, "a" * 8, "no")
    many = 200 * others
    pair = pair_of("order 2, chosen pairs", features, many, first, second, order=2)
    return replace(pair, planned=10_000_000)


def _combinations(count: int) -> tuple[list[Feature], list[dict[str, Any]]]:
    """So many features of three letters each, and records of any of them."""
    names = [f"x{number}" for number in range(count)]
    drawn = np.random.default_rng(5).choice(list("abc"), (24, count))
    others = [_record(names, letters, CLASSES[row % 2]) for row, letters in enumerate(drawn)]
    return _letters(*names), others


def ranges() -> Pair:
    """A number that is first looked for; one record leaves the others for a place far away."""
    others = [{"x": 50.0 + row % 40, "label": CLASSES[row % 2]} for row in range(200)]
    first, second = {"x": 60.0, "label": "no"}, {"x": 900_000.0, "label": "yes"}
    wide = Numeric(name="x", lower=-1_000_000, upper=1_000_000)
    return pair_of("ranges", [wide], others, first, second)


def spikes() -> Pair:
    """Two whole numbers whose values are looked at one by one: a record changes both."""
    names = ("x", "y")
    others = [_record(names, [(7, 40, 300)[row % 3]] * 2, CLASSES[row % 2]) for row in range(60)]
    first, second = {"x": 150, "y": 151, "label": "no"}, {"x": 40, "y": 300, "label": "yes"}
    features = [Numeric(name=name, lower=0, upper=400, integer=True) for name in names]
    pair = pair_of("spikes", features, others, first, second, order=1)
    return replace(pair, planned=1_000_000)


def groups() -> Pair:
    """Two columns make groups that are named; the record changes both, its class and the rest."""
    names = ("x", "y", "z")
    first, second = _record(names, "abc", "no"), _record(names, "cab", "yes")
    pair = pair_of("groups", _letters(*names), _spread(*names), first, second, order=1)
    return replace(pair, groups=("x", "y"))


def unfit() -> Pair:
    """Cells that do not fit: in some of the other records, and in all of the replaced one of D.

    It has no label that counts, either. What stands for such a cell must not follow from the rows.
    """
    letters = "?bab?abab?ab?"  # of which most are b, unless an a comes
    numbers = ["?" if row % 3 else 5.0 if row < 9 else 95.0 for row in range(13)]
    cells = list(zip(numbers, range(0, 91, 7), letters, strict=True))
    others = [_record("xyz", each, CLASSES[row % 2]) for row, each in enumerate(cells)]
    first, second = _record("xyz", ("?", "", 7), "perhaps"), _record("xyz", (99.0, 1.0, "a"), "no")
    numeric = [Numeric(name=name, lower=0, upper=100) for name in "xy"]
    features = [*numeric, *_letters("z")]
    pair = pair_of("cells that do not fit", features, others, first, second, order=1)
    return replace(pair, one=pair.one.astype(object), two=pair.two.astype(object))


def far_number() -> Pair:
    """One record is far from all others in D: cells from the rows would move all of them."""
    others = [{"x": row / 4, "label": CLASSES[row % 2]} for row in range(12)]
    first, second = {"x": 100.0, "label": "no"}, {"x": 1.0, "label": "yes"}
    return pair_of("far number", [Numeric(name="x", lower=0, upper=100)], others, first, second)


def in_parts() -> Pair:
    """Order 2 on a table that workers count part by part."""
    return replace(counted_pairs(), name="order 2, in parts", in_parts=True)


def persons_in_parts() -> Pair:
    """The same with records of the person in several parts of a table that workers count."""
    return replace(persons(), name="one person, in parts", in_parts=True)


def bits() -> Pair:
    """A set of bits with as many ones as are kept, and another without a one in common."""
    return _bit_pair("bits", [{0, 20}, {3, 21}, {30}, {7, 8}] * 3, {0, 1, 2, 3}, {10, 11, 12, 13})


def many_bits() -> Pair:
    """So many bits that Gaussian noise is the smaller one where δ > 0."""
    first, second = set(range(20)), set(range(100, 120))
    return _bit_pair("400 bits", [{0, 20}, {3, 21}, {30}, {7, 8}] * 3, first, second, 400)


def crowded_bits() -> Pair:
    """All other records have more ones than are kept; the replaced one has none, or all of them.

    What is kept of a record must depend on this record alone, or all the others move with it.
    """
    others = [set(range(start, start + 20)) for start in (0, 4, 8, 12, 16, 20)] * 60
    return _bit_pair("crowded bits", others, set(), set(range(40)))


def images() -> Pair:
    """A white image of one class, and a chequered one of the other."""
    return _image_pair("images", side=8, others=12)


def many_frequencies() -> Pair:
    """So many rows that many frequencies are measured, and Gaussian noise is the smaller one."""
    pair = _image_pair("images, many frequencies", side=12, others=1700)
    return replace(pair, by_frequencies=True)


def features() -> Pair:
    """So many rows that random features are measured, from ε = 0.5 on and with δ > 0.

    The replaced image changes its class, which moves the sums by all of the L2 sensitivity.
    """
    return replace(_image_pair("images, features", side=6, others=1200), order=2)


def persons_features() -> Pair:
    """The same with one person of five records, of which three are used."""
    pair = replace(_image_pair("", side=6, others=3600), order=2)
    return _of_one_person(pair, "one person, features")


def last_of_its_class() -> Pair:
    """The replaced record is the only one of its class: without it, one class is left."""
    others = [record | {"label": "no"} for record in _spread("x")]
    first, second = {"x": "a", "label": "yes"}, {"x": "a", "label": "no"}
    return pair_of("last of its class", _letters("x"), others, first, second)


def last_of_its_kind() -> Pair:
    """The replaced record is the only one that differs in a column: without it, a constant."""
    others = [record | {"y": "a"} for record in _spread("x")]
    first, second = {"x": "a", "y": "b", "label": "yes"}, {"x": "a", "y": "a", "label": "yes"}
    return pair_of("last of its kind", _letters("x", "y"), others, first, second, order=1)


def _person(make: Callable[[], Pair], what: str) -> Callable[[], Pair]:
    """The pair that `make` gives, with one person who has three records that count."""
    return lambda: _of_one_person(make(), f"one person, {what}")


persons = _person(one_feature, "three records")
persons_pairs = _person(counted_pairs, "pairs")
persons_groups = _person(groups, "groups")
persons_moments = _person(moments, "moments")
persons_ranges = _person(ranges, "ranges")
persons_spikes = _person(spikes, "spikes")
persons_bits = _person(bits, "bits")
persons_images = _person(images, "images")

PURE_PAIRS = (
    *(one_feature, wide, what_goes_together, counted_pairs, ranges, spikes, groups),
    *(persons_groups, moments, long_rows, chosen_pairs, persons_moments, persons_ranges),
    *(persons_spikes, unfit, far_number, persons, in_parts, persons_in_parts, persons_pairs),
    *(bits, persons_bits, crowded_bits, images, persons_images),
)
# Are played with δ > 0, too. The first three get Gaussian noise at any δ, the next two at 0.01.
APPROXIMATE_PAIRS = (
    *(wide, many_bits, wide_pairs, many_frequencies, counted_pairs, spikes, persons_spikes),
    *(persons_groups, unfit, moments, long_rows, features, persons_features, persons, bits, images),
)


def pairs_at(budget: Budget) -> Sequence[Callable[[], Pair]]:
    """The pairs that are played at this δ."""
    return APPROXIMATE_PAIRS if budget.delta else PURE_PAIRS


LAST_ONES = (last_of_its_class, last_of_its_kind)  # a release must not refuse either table


def _letters(*names: str) -> list[Feature]:
    return [Categorical(name=name, categories=("a", "b", "c")) for name in names]


def _record(names: Iterable[str], cells: Iterable[Any], label: str) -> Record:
    return dict(zip(names, cells, strict=True)) | {"label": label}


def _spread(*names: str) -> list[Record]:
    """Twelve records over all cells of the named features and both classes."""
    cells = ["abc"[row % 3] * len(names) for row in range(12)]
    return [_record(names, each, CLASSES[row // 3 % 2]) for row, each in enumerate(cells)]


def schema_of(*features: Feature) -> Schema:
    """A schema of these features and of the two `CLASSES`."""
    return Schema(name="audit", features=features, label=Label(name="label", classes=CLASSES))


def pair_of(
    name: str,
    features: Sequence[Feature],
    others: Sequence[Record],
    first: Record,
    second: Record,
    **how: Any,
) -> Pair:
    """The other records with `first` after them in D, and with `second` after them in D'."""
    one, two = (pd.DataFrame([*others, last]) for last in (first, second))
    return Pair(name, schema_of(*features), one, two, **how)


def _of_one_person(pair: Pair, name: str) -> Pair:
    """The replaced record as one person's: five of it in D, and thirty of another person in D'.

    Of each three are used. How many people there are is public, and how many rows is not.
    """
    (lone,) = np.flatnonzero(~pair.shared[0])

    def repeated(table: pd.DataFrame, person: str, records: int) -> pd.DataFrame:
        people = [f"p{row}" for row in range(len(table))]
        people[lone] = person
        rows = [*range(len(table)), *[int(lone)] * (records - 1)]
        return table.assign(who=people).iloc[rows].reset_index(drop=True)

    one, two = repeated(pair.one, "Ann", 5), repeated(pair.two, "Bob", 30)
    return replace(pair, name=name, one=one, two=two, unit_column="who", max_records=3)


def _image_pair(name: str, side: int, others: int) -> Pair:
    """Square images with `others` random ones, in both tables, before the replaced one."""
    image = Pixels(name="p", height=side, breadth=side, levels=16)
    row, column = np.indices((side, side))
    chequered = 16 * ((row // 4 + column // 4) % 2).reshape(1, -1)
    rest = np.random.default_rng(0).integers(0, 17, (others, side**2))

    def table(last: Array, label: str) -> pd.DataFrame:
        frame = pd.DataFrame(np.concatenate([rest, last]), columns=list(image.columns))
        return frame.assign(label=[*(CLASSES[number % 2] for number in range(others)), label])

    one, two = table(np.full_like(chequered, 16), "no"), table(chequered, "yes")
    return Pair(name, schema_of(image), one, two)


def _bit_pair(
    name: str, others: list[set[int]], first: set[int], second: set[int], bits: int = 40
) -> Pair:
    """Records of so many bits, each given by where its ones are.

    The replaced record comes before all others: whatever it disturbs, it disturbs for all of them.
    """

    def record(ones: set[int], label: str) -> Record:
        return {f"b{bit}": int(bit in ones) for bit in range(bits)} | {"label": label}

    schema = schema_of(*(Binary(name=f"b{bit}") for bit in range(bits)))
    rest = [record(ones, CLASSES[number % 2]) for number, ones in enumerate(others)]
    replaced = record(first, "no"), record(second, "yes")
    one, two = (pd.DataFrame([each, *rest]) for each in replaced)
    return Pair(name, schema, one, two)
