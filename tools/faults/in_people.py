"""Faults of units: people taken for records, rows that do not count, cells that do not fit."""

from faults.fault import *  # noqa: F403 - the short names of these lists

TABLE = "curator/table.py"
_SPIKES = 'measured += [noise.perturb("spikes", what, private_spikes, bound, for_spikes)]'
_RANGES = 'measured += [noise.perturb("ranges", what, private_ranges, bound, for_ranges)]'
_SIZE = "return self.rows if self.unit_column is None else len(self._private_people[0])"
_ODD = "privacy/test_no_exact_answer.py"

# ruff: noqa: F405
# fmt: off
FAULTS: tuple[Fault, ...] = (
    fault("spikes that ignore max_records", "the sensitivity of the slices is that of a record",
           MIXED, _SPIKES, f"bound = Sensitivity.of_counts(plan.ranges, 1)\n        {_SPIKES}",
           (MOVES, "one person, spikes")),
    gaussian("spikes that ignore max_records, with a δ", "the same for Gaussian noise",
              MIXED, _SPIKES, f"bound = Sensitivity.of_counts(plan.ranges, 1)\n        {_SPIKES}",
              (MOVES, "one person, spikes")),
    fault("a first look that ignores max_records", "its sensitivity is that of a record",
           MIXED, _RANGES, f"bound = Sensitivity.of_counts(plan.ranges, 1)\n        {_RANGES}",
           (MOVES, "one person, ranges")),
    fault("a first look at all records of a person", "only later steps keep to max_records",
           TABLE, "if self._private_used is not None:\n                counts",
           "if self._private_used is not None and wanted is not features:\n                counts",
           (MOVES, "one person, ranges")),
    fault("moments that ignore max_records", "their sensitivity is that of a record",
           MIXED, "Sensitivity.of_moments(plan.norm, features, plan.records)",
           "Sensitivity.of_moments(plan.norm, features, 1)", (MOVES, PERSONS_MOMENTS)),
    fault("pairs that ignore max_records", "their sensitivity is that of a record",
           MIXED, "bound = Sensitivity.of_counts(len(chosen), plan.records)",
           "bound = Sensitivity.of_counts(len(chosen), 1)", (MOVES, "one person, pairs")),
    fault("units counted from labelled rows", "whether one record has a label is public",
           TABLE, _SIZE, _SIZE.replace("self.rows", "len(self.private_rows()[1])"),
           (ALONE, UNFIT), (PLANNED, UNFIT)),
    fault("a plan made from records instead of people", "how many records a person has is public",
           CURATOR, "self.schema, table.size, budget,", "self.schema, table.rows, budget,",
           (PLANNED, PERSON)),
    fault("a plan that tells how many records there are", "that is private where people are units",
           CURATOR, "replace(plan, units=table.size)", "replace(plan, units=table.rows)",
           (PLANNED, PERSON)),
    fault("a record that tells how many rows there are", "the same in the veil",
           PLAN, "units=table.size,", "units=table.rows,", (ALONE, PERSON)),
    fault("a batch median in place of a missing number", "one record moves what others count as",
           "schema/numeric.py", "elsewhere = math.nan if self.missing else self._middle",
           "elsewhere = math.nan if self.missing else float(np.nanmedian(numbers))",
           (MOVES, UNFIT)),
    fault("the usual category in place of an unknown one", "one record moves what others count as",
           "schema/features.py", "elsewhere = empty if self.missing else 0",
           "elsewhere = empty if self.missing else int("
           "np.bincount(codes[codes >= 0], minlength=empty)"
           "[:empty].argmax())", (MOVES, UNFIT)),
    fault("bounds of a number widened by the rows", "one far number moves all the others",
           "schema/numeric.py", "return (numbers - self.lower) / self.span",
           "return (numbers - self.lower) / max(np.nanmax(numbers) - self.lower, 1e-9)",
           (MOVES, "far number")),
    fault("the norm bound of products too large", "rows are longer than their sensitivity says",
           "population/moments.py", "label, UNIT - label, (UNIT - label) ** 2",
           "label, 2 * UNIT, 4 * UNIT**2", (MOVES, "long rows")),
    gaussian("the L2 bound of products too large", "rows are longer than their sensitivity says",
              "population/moments.py", "most * len(values), UNIT**2 - label**2",
              "most * len(values), 2 * UNIT**2", (MOVES, MOMENTS), (MOVES, "long rows")),
    fault("a row that is cut after it was counted", "the sums hold longer rows than is stated",
           SUMS, "bounded = cut(vectors, *self._clip)",
           "bounded = vectors if len(vectors) > 12 else cut(vectors, *self._clip)",
           (MOVES, "images")),
    by_test("people told apart by how an id is written", "one person counts as often as written",
           TABLE, 'unicodedata.normalize("NFC", str(cell)).strip()', "str(cell)",
           f"{_ODD}::test_people_are_told_apart_by_a_public_rule"),
    by_test("rows without a person are one person", "they count, and move with each other",
           TABLE, "if person is not None:", "if True:",
           f"{_ODD}::test_rows_without_a_person_count_for_nothing_and_only_the_check_says_so"),
    by_test("CSV columns of the kind that all cells allow", "one odd cell moves how others count",
           "curator/sources.py", "csv_batches(path, columns, BATCH, columns)",
           "csv_batches(path, columns, BATCH)",
           f"{_ODD}::test_one_odd_cell_does_not_change_how_the_others_count"),
    by_test("whole numbers as floats beside a missing one", "one empty cell moves how others count",
           "curator/sources.py", "integer_object_nulls=True", "integer_object_nulls=False",
           f"{_ODD}::test_one_missing_cell_leaves_large_whole_numbers_as_they_are"),
)
