"""Faults in what is measured: exact numbers, sensitivities."""

from faults.fault import *  # noqa: F403 - the short names of these lists

_EACH = 'measured += [noise.perturb("{0}", what, {1}, bound, for_{0})]'
_SINGLES = _EACH.format("singles", "private_counts.singles")
_PAIRS, _MOMENTS = _EACH.format("pairs", "flat"), _EACH.format("moments", "private_sums.moments")
_CUT = "rows = cut(np.stack([values[code[some]] for values, code in scores]).T, *self._norms)"
_BIT_RECORD = "return record_of(table, plan, pooled, sums)"
_GRID = "grid = chosen_grid(schema, record_of(table, plan, *measured))"
_RANGES = 'measured += [noise.perturb("ranges", what, private_ranges, bound, for_ranges)]'
_SPIKES = 'measured += [noise.perturb("spikes", what, private_spikes, bound, for_spikes)]'
_GROUPS = 'measured += [noise.perturb("groups", what, counted.counts, bound, share)]'
_FIRST = "used[person] < self.records"

# ruff: noqa: F405
# fmt: off
FAULTS: tuple[Fault, ...] = (
    # Exact numbers in the record
    fault("exact counts of single features", "the record holds exact counts",
           MIXED, _SINGLES,
           f"made = {_SINGLES[len('measured += ['):-1]}\n"
           f"    measured += [{REPLACE}(made, values=private_counts.singles)]",
           (ALONE, ONE)),
    fault("exact counts of pairs", "the record holds exact counts of pairs",
           MIXED, _PAIRS,
           f"made = {_PAIRS[len('measured += ['):-1]}\n"
           f"        measured += [{REPLACE}(made, values=flat)]", (ALONE, PAIRS)),
    fault("exact moments", "the record holds exact second moments",
           MIXED, _MOMENTS,
           f"made = {_MOMENTS[len('measured += ['):-1]}\n"
           f"        measured += [{REPLACE}(made, values=private_sums.moments)]", (ALONE, MOMENTS)),
    fault("pairs chosen by exact moments", "which pairs are counted tells of every record",
           MIXED, "chosen = _strongest(record_of(table, plan, *measured), known, plan.pairs)",
           f"told = {REPLACE}(measured[-1], values=private_sums.moments)\n"
           "        told = record_of(table, plan, *measured[:-1], told)\n"
           "        chosen = _strongest(told, known, plan.pairs)",
           (ITSELF, "order 2, chosen pairs")),
    fault("exact ranges", "the record holds exact counts of a number",
           MIXED, _RANGES,
           f"made = {_RANGES[len('measured += ['):-1]}\n"
           f"        measured += [{REPLACE}(made, values=private_ranges)]", (ALONE, RANGES)),
    fault("exact spikes", "the record holds exact counts of single values",
           MIXED, _SPIKES,
           f"made = {_SPIKES[len('measured += ['):-1]}\n"
           f"        measured += [{REPLACE}(made, values=private_spikes)]", (ALONE, SPIKES)),
    fault("spikes of one number", "a record moves the slices of every number",
           MIXED, _SPIKES, f"bound = Sensitivity.of_counts(1, plan.records)\n        {_SPIKES}",
           (MOVES, SPIKES)),
    gaussian("spikes of one number with a δ", "a record moves the slices of every number",
              MIXED, _SPIKES, f"bound = Sensitivity.of_counts(1, plan.records)\n        {_SPIKES}",
              (MOVES, SPIKES)),
    fault("exact counts of groups", "the record holds exact counts of groups",
           MIXED, _GROUPS,
           f"made = {_GROUPS[len('measured += ['):-1]}\n"
           f"            measured += [{REPLACE}(made, values=counted.counts)]", (ALONE, GROUPS)),
    fault("groups counted in one table", "a record moves a table of every feature",
           MIXED, _GROUPS,
           f"bound = Sensitivity.of_counts(1, plan.records)\n            {_GROUPS}",
           (MOVES, GROUPS)),
    fault("groups of one record a person", "a person moves as many records as count",
           MIXED, _GROUPS,
           f"bound = Sensitivity.of_counts(tables, 1)\n            {_GROUPS}",
           (MOVES, PERSONS_GROUPS)),
    fault("slices cut by the rows", "one far number moves all others to another slice",
           SUMS, "self.counts += self.cells.counts(private_columns)",
           "self.counts += self.cells.counts([each if each is None or each.dtype.kind != 'f'"
           " else each / max(np.nanmax(each), 1e-9) for each in private_columns])",
           (ITSELF, SPIKES)),
    fault("bins from exact ranges", "where the bins lie tells where every record is",
           MIXED, f"    {_GRID}",
           f"    told = {REPLACE}(measured[0], values=private_ranges) if plan.ranges else None\n"
           "    told = record_of(table, plan, *([told] if told else []))\n"
           "    grid = chosen_grid(schema, told)", (ITSELF, RANGES), (MOVES, RANGES)),
    fault("exact class counts of bits", "column 0 of the class sums is exact",
           BIT_SETS, _BIT_RECORD,
           "known = sums.values.copy()\n    known[:, 0] = private_sums.sums[:, 0]\n"
           f"    return record_of(table, plan, pooled, {REPLACE}(sums, values=known))",
           (ALONE, BITS)),
    fault("exact pooled sums of bits", "the record holds exact sums",
           BIT_SETS, _BIT_RECORD,
           f"return record_of(table, plan, {REPLACE}(pooled, values=private_pooled), sums)",
           (ALONE, BITS)),
    fault("exact sums of images", "the record holds exact sums",
           PICTURES, "return record_of(table, plan, sums)",
           "return record_of(table, plan, replace(sums, values=private_sums.sums))",
           (ALONE, IMAGES)),
    gaussian("exact sums of features", "the record holds exact sums",
              PICTURES, "return record_of(table, plan, sums)",
              "return record_of(table, plan, replace(sums, values=private_sums.sums))",
              (ALONE, FEATURES)),
    gaussian("nearly exact features", "sums are rounded after noise that is too small for them",
              PICTURES, "return record_of(table, plan, sums)",
              "near = private_sums.sums + (sums.values - private_sums.sums) // 100\n"
              "    return record_of(table, plan, replace(sums, values=near))", (ALONE, FEATURES)),
    fault("units from exact class counts", "a public field of the record is read off the rows",
           PLAN, "units=table.size,", "units=1 + int(table.private_rows()[1].sum()),",
           (ALONE, ONE)),
    fault("number of bins from the rows", "the shape of the record tells the largest number",
           MIXED, _GRID,
           "most = max(float(points.max()) for points, _ in table.private_batches())\n"
           "    grid = Grid(table.schema, 8 + int(20 * most))", (ALONE, "far number")),
    # Sensitivity
    fault("moments without the factor 2", "a replaced record takes moments away and adds others",
           RECORD, "return cls(2 * wider * UNIT**2 * records,",
           "return cls(wider * UNIT**2 * records,", (MOVES, PERSONS_MOMENTS), (MOVES, LONG)),
    gaussian("moments without the factor 2 in L2", "Gaussian noise for half of the move",
              RECORD, "root_above(4 * UNIT**4 * records**2)", "root_above(UNIT**4 * records**2)",
              (MOVES, MOMENTS)),
    fault("scores of any length", "the scores of a record are not cut to the norm",
           SUMS, _CUT, "rows = np.stack([values[code[some]] for values, code in scores]).T",
           (MOVES, LONG)),
    fault("the weight of the class forgotten", "the norm of a row leaves out the class",
           "population/moments.py", "UNIT - label, (UNIT - label) ** 2", "UNIT, UNIT**2",
           (MOVES, LONG)),
    fault("scores cut by the longest row", "one record changes what is kept of all others",
           SUMS, _CUT,
           "rows = np.stack([values[code[some]] for values, code in scores]).T\n"
           "            rows = np.trunc(rows * 1024 / max(1, np.abs(rows).sum(axis=1).max()))",
           (ITSELF, "order 2, chosen pairs")),
    fault("scores from exact counts", "one record moves the scores of all the others",
           MIXED, "whole = whole_scores(known.scores, known.tables, plan.norm)",
           f"told = {REPLACE}(measured[-1], values=private_counts.singles)\n"
           "        exact = Marginals(schema, record_of(table, plan, *measured[:-1], told))\n"
           "        whole = whole_scores(exact.scores, exact.tables, plan.norm)",
           (ITSELF, MOMENTS)),
    fault("counts without the factor 2", "a replaced record leaves a cell and enters another",
           RECORD, "return cls(2 * tables * records,", "return cls(tables * records,",
           (MOVES, WIDE), (NUMBERS, ONE)),
    fault("people counted as records", "the sensitivity forgets max_records",
           RECORD, "return cls(2 * tables * records, root_above(2 * tables * records**2))",
           "return cls(2 * tables, root_above(2 * tables))", (MOVES, PERSON), (NUMBERS, PERSON)),
    gaussian("sums without the factor 2 in L2", "Gaussian noise for half of the move",
              RECORD, "root_above(4 * l2_squared * records**2)",
              "root_above(l2_squared * records**2)", (MOVES, BITS)),
    fault("class counts forgotten in the norm", "the bound leaves out the weight of the count",
           SUMS, "self.l1, self.l2_squared = l1 + count_weight, l2_squared + count_weight**2",
           "self.l1, self.l2_squared = l1, l2_squared", (MOVES, BITS)),
    fault("image norm not cut", "one bright image moves the sums beyond the bound",
           SUMS, "bounded = cut(vectors, *self._clip)", "bounded = vectors", (MOVES, IMAGES)),
    gaussian("features: half of the norm", "Gaussian noise for half of the move",
              SUMS, "root_above(4 * l2_squared * records**2))",
              "root_above(l2_squared * records**2))", (MOVES, FEATURES), (NUMBERS, FEATURES)),
    gaussian("features: person as one record", "the sensitivity of features forgets max_records",
              SUMS, "root_above(4 * l2_squared * records**2))",
              "root_above(4 * l2_squared))", (MOVES, PERSONS_FEATURES)),
    Fault("features: a count that is too heavy", "the count moves the sums beyond the norm",
          ((SUMS, "if count_weight**2 > l2_squared:", "if count_weight < 0:"),
           ("population/generator.py", "return math.isqrt(features) * FIXED_POINT",
            "return 2 * math.isqrt(features) * FIXED_POINT")),
          ((MOVES, FEATURES),), delta=SHARP),
    gaussian("features: waves scaled by the rows", "the basis of the objective holds data",
              SUMS, "self._vectors_of(private_points[some])",
              "self._vectors_of(private_points[some] / (0.01 + private_points.mean(axis=0)))",
              (MOVES, FEATURES)),
    fault("cut of ones depends on other rows", "one record moves what is kept of all others",
           BIT_SETS, "turn = (crowded @ weights) % bits",
           "turn = (crowded @ weights + len(full)) % bits", (MOVES, "crowded bits")),
    fault("max_records ignored, mixed", "all records of a person are used",
           "curator/table.py", _FIRST, "used[person] < 9 * self.records", (MOVES, PERSON)),
    fault("max_records ignored, bits", "all records of a person are used",
           "curator/table.py", _FIRST, "used[person] < 9 * self.records",
           (MOVES, "one person, bits")),
    fault("max_records ignored, images", "all records of a person are used",
           "curator/table.py", _FIRST, "used[person] < 9 * self.records",
           (MOVES, "one person, images")),
    fault("a part that is added twice", "what workers count is in the sums more than once",
           SUMS, "mine.merge(theirs)", "(mine.merge(theirs), mine.merge(theirs))",
           (MOVES, IN_PARTS)),
    fault("max_records anew in every part", "a person counts in each part of a table",
           "curator/table.py", "used[start : start + part.rows]", "used[: part.rows]",
           (MOVES, IN_PARTS)),
    fault("parts that share rows", "a row is in two parts of a table",
           "parts.py", "min(most, rows - start), start, number", "rows - start, start, number",
           (MOVES, "order 2, in parts")),
    fault("person's bits as one record", "the sensitivity of bits forgets max_records",
           BIT_SETS, "Sensitivity.of_sums(plan.ones, plan.ones, plan.records)",
           "Sensitivity.of_sums(plan.ones, plan.ones, 1)", (MOVES, "one person, bits")),
    fault("person's images as one record", "the sensitivity of images forgets max_records",
           PICTURES, "bound = private_sums.sensitivity(plan.records)",
           "bound = private_sums.sensitivity(1)", (MOVES, "one person, images")),
    fault("bin edges from the rows", "one far number moves all others to another bin",
           "curator/table.py", "else cells.codes_of(column)",
           "else cells.codes_of(column / max(np.nanmax(column), 1e-9)"
           " if column.dtype.kind == 'f' else column)",
           (MOVES, "far number"), (NUMBERS, "far number")),
)
