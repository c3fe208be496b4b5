"""The planted faults: what is changed in which file, what that breaks, and who must find it.

The texts follow the code: one that is not there exactly once is refused when it is planted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SHARP = 0.01  # δ of the games and checks of Gaussian noise
SOUND = "none: the sound code"

CURATOR = "curator/curator.py"
MIXED, BIT_SETS, PICTURES = "curator/mixed.py", "curator/bits.py", "curator/images.py"
NOISE, SUMS, DPSGD = "curator/noise.py", "curator/coefficients.py", "curator/dpsgd.py"
RECORD, PLAN, SCORE = "privacy/record.py", "curator/plan.py", "curator/score.py"
SCORECARD = "population/scorecard.py"

# Views of the audit, in short.
ALONE, MOVES, ENOUGH = "the record holds noise alone", "sums move as stated", "the noise is enough"
ITSELF = "every record adds by itself"
STATED, REPEATS, SHARES = "the noise is as stated", "the noise never repeats", "the shares add up"
FOLLOWS, READ = "the veil follows from its record", "rows are read once, after the charge"
REFUSED, ERRORS, COMMAND = "no table is refused", "errors hold no value", "the command"
TREE, SAMPLER = "tree, its share of ε", "coefficients, the curator's sampler"
NUMBERS = "coefficients"
SCORED, COUNTS = "the score holds noise alone", "counts move as stated"
TRAINED, CODES = "training is as stated", "prototypes follow from noisy sums"
ONE, WIDE, TWO, TIE = "one feature", "eleven features", "order 2", "order 2, near tie"
PRODUCTS, RANGES = "products", "ranges"
PERSON, BITS, IMAGES = "one person, three records", "bits", "images"
FEATURES, PERSONS_FEATURES = "images, features", "one person, features"
EVERY, SOME = "a canary in every batch", "a canary in some batches"

Play = tuple[str, str]  # a view and a pair


@dataclass(frozen=True)
class Fault:
    """A planted fault: (file, old text, new text), what it breaks, and who must find it.

    `plays` are views and pairs of the audit of `mechanism` at ε = 1 and this δ.
    """

    name: str
    breaks: str
    patches: tuple[tuple[str, str, str], ...]
    plays: tuple[Play, ...]
    mechanism: str = "functional"
    delta: float = 0.0


def _fault(
    name: str, breaks: str, file: str, old: str, new: str, *plays: Play, **where: Any
) -> Fault:
    """A fault of one change."""
    return Fault(name, breaks, ((file, old, new),), plays, **where)


def _gaussian(name: str, breaks: str, file: str, old: str, new: str, *plays: Play) -> Fault:
    return _fault(name, breaks, file, old, new, *plays, delta=SHARP)


def _dpsgd(name: str, breaks: str, *changes: str, plays: Sequence[Play]) -> Fault:
    """A fault of `dpsgd`: old text, new text, and so on."""
    pairs = zip(changes[::2], changes[1::2], strict=True)
    patches = tuple((DPSGD, old, new) for old, new in pairs)
    return Fault(name, breaks, patches, tuple(plays), "dpsgd", SHARP)


def _score(name: str, breaks: str, file: str, old: str, new: str, *plays: Play) -> Fault:
    return _fault(name, breaks, file, old, new, *plays, mechanism="score")


_ADD = "noisy = measurement(flat.tolist())"
_CHOSEN = "return int(measurement([int(score) for score in scores]))"
_EDGE = "noise.choose(scores, sensitivity, epsilon)"
_SINGLES = "measured += [singles]"
_BIT_RECORD = "return record_of(table, plan, pooled, sums)"
_REPLACE = '__import__("dataclasses").replace'
_VEIL = """return Veil(
            schema,
            made.autoencoder,
            made.prototypes,
            statement,
            made.surrogate,
            record,
            generator=made.generator,
        )"""
_GRID = "grid = chosen_grid(schema, record_of(table, plan, *measured))"
_RANGES = 'measured += [noise.perturb("ranges", what, private_ranges, bound, budget)]'
_PRODUCTS = 'measured += [noise.perturb("products", what, private_products, bound, budget)]'
_RESERVE = 'reserved = self._reserve(job, f"release by {mechanism} of {self.schema.name}")'
_FIRST = "used[person] < self.records"
_OPTIMISER = "noise_multiplier=noise,\n        max_grad_norm=clip,"
_COUNTED = 'what = f"counts of (class, feature) for {features} features"'
_IMPORT = "from counterveil.schema import Schema\n"
_SCORED = 'return noise.perturb("score", what, private_counts, bound, budget.rounded_down())'
_PAID = 'paid = self._reserve(job, f"score of a private model on {self.schema.name}")'
_POINTS = "points = torch.as_tensor(encoded, dtype=torch.float32)"
_TRAINING = "schedule, clip = training.schedule, training.clip"

# fmt: off
FAULTS: tuple[Fault, ...] = (
    # The choice of a tree
    _fault("exact choice of the tree", "the best pair is chosen without noise",
           MIXED, _EDGE, "int(np.argmax(scores))", (ALONE, TIE)),
    _fault("exact noisy maximum", "the noisy maximum has no noise",
           NOISE, _CHOSEN, "return int(np.argmax(scores))", (TREE, TIE), (REPEATS, "zeros")),
    _fault("choice with far too large an ε", "each edge spends 20 times the share of all",
           MIXED, _EDGE, "noise.choose(scores, sensitivity, 20 * plan.epsilons[2])",
           (ALONE, TIE)),
    _fault("noisy maximum of a hundredth of its scale", "the choice leaks far more than its share",
           NOISE, _CHOSEN,
           "return int(dp.m.make_noisy_max(*space, dp.max_divergence(), scale=scale / 100)"
           "([int(score) for score in scores]))", (TREE, TIE)),
    _fault("choice sensitivity halved", "a score moves by 2 a record, not by 1",
           MIXED, "private_counts.features, 2 * plan.records",
           "private_counts.features, plan.records",
           (MOVES, TIE)),
    # Exact numbers in the record
    _fault("exact counts of single features", "the record holds exact counts",
           MIXED, _SINGLES,
           f"measured += [{_REPLACE}(singles, values=private_counts.singles)]",
           (ALONE, ONE)),
    _fault("exact counts of pairs", "the record holds exact counts of order 2",
           MIXED, "measured += [tree, pairs]",
           f"measured += [tree, {_REPLACE}(pairs, values=private_pairs)]", (ALONE, TWO)),
    _fault("exact ranges", "the record holds exact counts of a number",
           MIXED, _RANGES,
           f"made = {_RANGES[len('measured += ['):-1]}\n"
           f"        measured += [{_REPLACE}(made, values=private_ranges)]", (ALONE, RANGES)),
    _fault("bins from exact ranges", "where the bins lie tells where every record is",
           MIXED, f"    {_GRID}",
           f"    told = {_REPLACE}(measured[0], values=private_ranges) if plan.ranges else None\n"
           "    told = record_of(table, plan, *([told] if told else []))\n"
           "    grid = chosen_grid(schema, told)", (ITSELF, RANGES), (MOVES, RANGES)),
    _fault("exact products", "the record holds exact sums of products",
           MIXED, _PRODUCTS,
           f"made = {_PRODUCTS[len('measured += ['):-1]}\n"
           f"        measured += [{_REPLACE}(made, values=private_products)]", (ALONE, PRODUCTS)),
    _fault("exact class counts of bits", "column 0 of the class sums is exact",
           BIT_SETS, _BIT_RECORD,
           "known = sums.values.copy()\n    known[:, 0] = private_sums.sums[:, 0]\n"
           f"    return record_of(table, plan, pooled, {_REPLACE}(sums, values=known))",
           (ALONE, BITS)),
    _fault("exact pooled sums of bits", "the record holds exact sums",
           BIT_SETS, _BIT_RECORD,
           f"return record_of(table, plan, {_REPLACE}(pooled, values=private_pooled), sums)",
           (ALONE, BITS)),
    _fault("exact sums of images", "the record holds exact sums",
           PICTURES, "return record_of(table, plan, sums)",
           "return record_of(table, plan, replace(sums, values=private_sums.sums))",
           (ALONE, IMAGES)),
    _gaussian("exact sums of features", "the record holds exact sums",
              PICTURES, "return record_of(table, plan, sums)",
              "return record_of(table, plan, replace(sums, values=private_sums.sums))",
              (ALONE, FEATURES)),
    _gaussian("nearly exact features", "sums are rounded after noise that is too small for them",
              PICTURES, "return record_of(table, plan, sums)",
              "near = private_sums.sums + (sums.values - private_sums.sums) // 100\n"
              "    return record_of(table, plan, replace(sums, values=near))", (ALONE, FEATURES)),
    _fault("units from exact class counts", "a public field of the record is read off the rows",
           PLAN, "units=table.size,", "units=1 + int(table.private_rows()[1].sum()),",
           (ALONE, ONE)),
    _fault("number of bins from the rows", "the shape of the record tells the largest number",
           MIXED, _GRID,
           "most = max(float(points.max()) for points, _ in table.private_batches())\n"
           "    grid = Grid(table.schema, 8 + int(20 * most))", (ALONE, "far number")),
    # Sensitivity
    _fault("products that count one pair", "a record moves every product of two of its points",
           RECORD, "(features - 1) * UNIT**2 * records", "UNIT**2 * records // 8",
           (MOVES, PRODUCTS)),
    _fault("points of any size", "the points of a record are not bounded together",
           SCORECARD, "size = max(float(np.sqrt((largest**2).sum())), 1e-9)",
           "size = max(float(largest.max()), 1e-9)", (MOVES, PRODUCTS)),
    _fault("points from exact counts", "one record moves the points of all the others",
           MIXED, "whole = whole_points(independent, plan.products)",
           f"told = {_REPLACE}(singles, values=private_counts.singles)\n"
           "        told = record_of(table, plan, *measured[:-1], told)\n"
           "        exact = TreePopulation(schema, told)\n"
           "        whole = whole_points(exact, plan.products)", (ITSELF, PRODUCTS)),
    _fault("counts without the factor 2", "a replaced record leaves a cell and enters another",
           RECORD, "return cls(2 * tables * records,", "return cls(tables * records,",
           (MOVES, WIDE), (NUMBERS, ONE)),
    _fault("people counted as records", "the sensitivity forgets max_records",
           RECORD, "return cls(2 * tables * records, root_above(2 * tables * records**2))",
           "return cls(2 * tables, root_above(2 * tables))", (MOVES, PERSON), (NUMBERS, PERSON)),
    _gaussian("sums without the factor 2 in L2", "Gaussian noise for half of the move",
              RECORD, "root_above(4 * l2_squared * records**2)",
              "root_above(l2_squared * records**2)", (MOVES, BITS)),
    _fault("class counts forgotten in the norm", "the bound leaves out the weight of the count",
           SUMS, "self.l1, self.l2_squared = l1 + count_weight, l2_squared + count_weight**2",
           "self.l1, self.l2_squared = l1, l2_squared", (MOVES, BITS)),
    _fault("image norm not cut", "one bright image moves the sums beyond the bound",
           SUMS, "bounded = cut(vectors, *self._clip)", "bounded = vectors", (MOVES, IMAGES)),
    _gaussian("features: half of the norm", "Gaussian noise for half of the move",
              SUMS, "root_above(4 * l2_squared * records**2))",
              "root_above(l2_squared * records**2))", (MOVES, FEATURES), (NUMBERS, FEATURES)),
    _gaussian("features: person as one record", "the sensitivity of features forgets max_records",
              SUMS, "root_above(4 * l2_squared * records**2))",
              "root_above(4 * l2_squared))", (MOVES, PERSONS_FEATURES)),
    Fault("features: a count that is too heavy", "the count moves the sums beyond the norm",
          ((SUMS, "if count_weight**2 > l2_squared:", "if count_weight < 0:"),
           ("population/generator.py", "return math.isqrt(features) * FIXED_POINT",
            "return 2 * math.isqrt(features) * FIXED_POINT")),
          ((MOVES, FEATURES),), delta=SHARP),
    _gaussian("features: waves scaled by the rows", "the basis of the objective holds data",
              PICTURES, "features.whole(private_points[some])",
              "features.whole(private_points[some] / (0.01 + private_points.mean(axis=0)))",
              (MOVES, FEATURES)),
    _fault("cut of ones depends on other rows", "one record moves what is kept of all others",
           BIT_SETS, "turn = (crowded @ weights) % bits",
           "turn = (crowded @ weights + len(full)) % bits", (MOVES, "crowded bits")),
    _fault("max_records ignored, mixed", "all records of a person are used",
           "curator/table.py", _FIRST, "used[person] < 9 * self.records", (MOVES, PERSON)),
    _fault("max_records ignored, bits", "all records of a person are used",
           "curator/table.py", _FIRST, "used[person] < 9 * self.records",
           (MOVES, "one person, bits")),
    _fault("max_records ignored, images", "all records of a person are used",
           "curator/table.py", _FIRST, "used[person] < 9 * self.records",
           (MOVES, "one person, images")),
    _fault("person's bits as one record", "the sensitivity of bits forgets max_records",
           BIT_SETS, "Sensitivity.of_sums(plan.ones, plan.ones, plan.records)",
           "Sensitivity.of_sums(plan.ones, plan.ones, 1)", (MOVES, "one person, bits")),
    _fault("person's images as one record", "the sensitivity of images forgets max_records",
           PICTURES, "bound, budget = private_sums.sensitivity(plan.records)",
           "bound, budget = private_sums.sensitivity(1)", (MOVES, "one person, images")),
    _fault("bin edges from the rows", "one far number moves all others to another bin",
           SUMS, "codes = self.grid.codes(private_points)",
           "codes = self.grid.codes(private_points / max(float(private_points.max()), 1e-9))",
           (MOVES, "far number"), (NUMBERS, "far number")),
    # Noise
    _fault("Laplace noise halved", "half of the stated noise is drawn",
           NOISE, _ADD, "noisy = _sampler(noise.kind, noise.scale / 2, len(flat))(flat.tolist())",
           (STATED, BITS), (SAMPLER, ONE)),
    _gaussian("Gaussian noise halved", "half of the stated noise is drawn",
              NOISE, _ADD,
              "noisy = _sampler(noise.kind, noise.scale / 2, len(flat))(flat.tolist())",
              (STATED, BITS)),
    _fault("Laplace scale halved in the calibration", "the noise is less than ε needs",
           NOISE, "return Noise(LAPLACE, scale, epsilon, 0.0)",
           "return Noise(LAPLACE, scale / 2, epsilon, 0.0)", (ENOUGH, ONE)),
    _gaussian("Gaussian noise for a third of L2", "the noise is less than ε and δ need",
              NOISE, "l1, l2 = sensitivity.l1, sensitivity.l2",
              "l1, l2 = sensitivity.l1, sensitivity.l2 / 3", (ENOUGH, WIDE), (NUMBERS, WIDE)),
    _gaussian("Gaussian noise for the root of the tables", "L2 of one table instead of all",
              RECORD, "return cls(2 * tables * records, root_above(2 * tables * records**2))",
              "return cls(2 * tables * records, root_above(2 * records**2))", (MOVES, WIDE)),
    _fault("one number without noise", "the first of every list of sums is exact",
           NOISE, "return np.array(noisy, dtype=np.int64).reshape(values.shape)",
           "return np.array([flat[0], *noisy[1:]], dtype=np.int64).reshape(values.shape)",
           (STATED, BITS)),
    _fault("noise from a fixed seed", "every release has the same noise, which can be subtracted",
           NOISE, _ADD,
           "dice = np.random.default_rng(7)\n"
           "        noisy = np.rint(flat + dice.laplace(0, noise.scale, len(flat)))",
           (REPEATS, "zeros")),
    _fault("noise that a seed steers", "whoever knows the seed can subtract the noise",
           NOISE, _ADD, "noisy = np.rint(flat + np.random.laplace(0, noise.scale, len(flat)))",
           (REPEATS, "zeros")),
    # Shares
    _fault("shares of 1.1 ε", "three steps spend more than ε together",
           MIXED, "singles = rest_of(epsilon, looked, tree, pairs, moments)",
           "singles = 0.85 * epsilon", (ALONE, TWO), (SHARES, "all families")),
    _fault("a share rounded up", "shares add up to more than ε by a hair",
           "privacy/budget.py",
           "near if Fraction(near) <= exact else math.nextafter(near, -math.inf)",
           "near if Fraction(near) >= exact else math.nextafter(near, math.inf)",
           (SHARES, "all families")),
    _fault("measured twice at full ε", "two answers about the same counts are averaged",
           MIXED, _SINGLES,
           'more = noise.perturb("singles", what, private_counts.singles, bound, budget)\n'
           "    mean = (singles.values + more.values) // 2\n"
           f"    measured += [{_REPLACE}(singles, values=mean)]", (ALONE, ONE)),
    _gaussian("δ used twice, order 2", "singles and pairs spend all of δ each",
              MIXED, "delta = plan.delta / noisy_steps",
              "delta = plan.delta", (ALONE, "twelve features, order 2")),
    _gaussian("δ used twice, bits", "pooled sums and class sums spend all of δ each",
              BIT_SETS, "Budget(epsilon, plan.delta / 2)", "Budget(epsilon, plan.delta)",
              (ALONE, BITS)),
    # Readings, charges, refusals
    _fault("a second pass", "the rows are read twice",
           MIXED, _GRID,
           f"list(table.private_batches())\n    {_GRID}", (READ, TWO)),
    _fault("rows read before the charge", "a crash after the reading would cost nothing",
           CURATOR, _RESERVE, f"list(job.table.private_batches())\n        {_RESERVE}",
           (READ, TWO)),
    Fault("charged after reading", "a crash after the reading costs nothing",
          ((CURATOR, _RESERVE, "reserved = None"),
           (CURATOR, "if self.ledger and reserved:",
            'reserved = self._reserve(job, "late")\n        if self.ledger and reserved:')),
          ((READ, BITS),)),
    _fault("not charged", "releases without end", CURATOR, _RESERVE, "reserved = None",
           (READ, IMAGES)),
    _fault("half charged", "the ledger pays for half of ε",
           CURATOR, "budget, other = job.budget, job.other_rows",
           "budget, other = Budget(job.budget.epsilon / 2, job.budget.delta), job.other_rows",
           (READ, TWO)),
    _fault("half stated", "the statement tells half of ε",
           CURATOR, "epsilon=budget.epsilon,\n            delta",
           "epsilon=budget.epsilon / 2,\n            delta", (READ, TWO)),
    Fault("refusal of a table with one class", "whether there is a veil depends on one record",
          ((MIXED, _COUNTED,
            "if not private_counts.singles.sum(axis=1).all():\n"
            f'        raise VeilError("a class has no rows")\n    {_COUNTED}'),
           (MIXED, _IMPORT, f"{_IMPORT}from counterveil.errors import VeilError\n")),
          ((REFUSED, "last of its class"),)),
    Fault("refusal of a constant column", "whether there is a veil depends on one record",
          ((MIXED, _COUNTED,
            "tables = np.split(private_counts.singles.sum(axis=0), grid.starts[1:])\n"
            "    if min(np.count_nonzero(counts) for counts in tables) < 2:\n"
            f'        raise VeilError("a column is constant")\n    {_COUNTED}'),
           (MIXED, _IMPORT, f"{_IMPORT}from counterveil.errors import VeilError\n")),
          ((REFUSED, "last of its kind"),)),
    _fault("an error that holds a value", "logs travel",
           "encoding.py", "columns.refuse_cells(codes < 0, label.name, unknown)",
           'columns.refuse_cells(codes < 0, label.name, f"{list(column)}: {unknown}")',
           (ERRORS, "a cell that does not fit")),
    _fault("a value on the terminal", "the command prints the label of the last row",
           "cli/private.py", "say(veil.statement.headline)",
           'say(__import__("pandas").read_csv(data)[public.label.name].iloc[-1])',
           (COMMAND, ONE), mechanism="dpsgd", delta=SHARP),
    # Fields of the veil
    _fault("class counts in the statement", "a text of the veil is read off the rows",
           CURATOR, "reasons=_draft_note(self.schema),",
           "reasons=(str(int(table.private_rows()[1].sum())),),", (FOLLOWS, PERSON)),
    _fault("a mean among the versions", "a text of the veil is read off the rows",
           CURATOR, "versions=_versions(),",
           'versions=_versions() | {"rows": str(table.private_rows()[0].mean(axis=0).tolist())},',
           (FOLLOWS, BITS)),
    _fault("an exact mean in the prototypes", "the prototypes do not follow from the record",
           CURATOR, _VEIL,
           _VEIL.replace("made.prototypes",
                         "made.prototypes + float(table.private_rows()[0].mean())"),
           (FOLLOWS, PERSON)),
    Fault("surrogate trained on the rows", "the surrogate does not follow from the record",
          ((CURATOR, _VEIL,
            "rows, labels = (torch.as_tensor(found) for found in table.private_rows())\n"
            "        learnt = train_surrogate(rows.float(), labels.long(), 2, hidden=(8,),"
            " epochs=2, seed=0)\n        " + _VEIL.replace("made.surrogate", "learnt")),
           (CURATOR, "from counterveil.networks import ",
            "import torch\nfrom counterveil.networks import train_surrogate\n"
            "from counterveil.networks import ")),
          ((FOLLOWS, PERSON),)),
    _fault("population from nearly exact counts", "the networks do not follow from the record",
           CURATOR, "population = population_of(schema, record)",
           "clear = make_plan(schema, table.size, Budget(1e5), records=table.records, order=1)\n"
           "        population = population_of(schema, measure(table, clear))", (FOLLOWS, PERSON)),
    _gaussian("generator of clearer features", "the generator does not follow from the record",
              CURATOR, "population = population_of(schema, record)",
              "clear = make_plan(schema, table.size, Budget(30.0, 0.01), order=2)\n"
              "        population = population_of(schema, measure(table, clear))",
              (FOLLOWS, FEATURES)),
    # dpsgd
    _dpsgd("dpsgd without clipping", "one record has any gradient it likes",
           _OPTIMISER, "noise_multiplier=noise * clip / 1e9,\n        max_grad_norm=1e9,",
           plays=[(TRAINED, EVERY), ("gradients, all of ε", EVERY)]),
    _dpsgd("dpsgd with fixed batches", "the proof needs batches drawn record by record",
           "chosen = np.flatnonzero(batches.random(rows) < schedule.rate)",
           "chosen = np.arange(_, rows, schedule.steps_per_epoch)", plays=[(TRAINED, SOME)]),
    _dpsgd("dpsgd with batches from a seed", "the proof needs secret batches",
           "batches = np.random.default_rng()", "batches = np.random.default_rng(0)",
           plays=[(TRAINED, SOME)]),
    _dpsgd("dpsgd that stops by the loss", "the number of steps depends on the rows",
           'tick(epoch + 1, "epochs")',
           'tick(epoch + 1, "epochs")\n        with torch.no_grad():\n'
           "            if float(loss_of(torch.arange(rows))) < 0:\n                break",
           plays=[(TRAINED, SOME)]),
    _dpsgd("dpsgd with half of the noise", "half of the stated noise is drawn",
           _OPTIMISER, _OPTIMISER.replace("=noise,", "=noise / 2,"), plays=[(TRAINED, EVERY)]),
    _dpsgd("dpsgd with another optimiser", "the default optimiser adds no noise",
           "(optimiser_class or DPOptimizer)(", "(optimiser_class or Quiet)(", _TRAINING,
           f"{_TRAINING}\n\n    class Quiet(DPOptimizer):\n        def add_noise(self):\n"
           "            for weight in self.params:\n"
           "                weight.grad = weight.summed_grad.clone()\n",
           plays=[(TRAINED, EVERY), ("gradients, the curator's training", EVERY)]),
    _dpsgd("dpsgd whose noise repeats", "noise that can be repeated can be subtracted",
           "renew(generator)\n            chosen",
           "generator.manual_seed(0)\n            chosen", plays=[(TRAINED, EVERY)]),
    _dpsgd("dpsgd accounted for one step", "the noise is too little for all steps",
           "steps=schedule.steps,", "steps=1,",
           "schedule.rate, schedule.steps, asked.delta)", "schedule.rate, 1, asked.delta)",
           plays=[(TRAINED, SOME)]),
    _dpsgd("dpsgd accounted for add/remove", "replacing a record is a removal and an addition",
           "epsilon = budget.epsilon / 2", "epsilon = budget.epsilon", plays=[(TRAINED, EVERY)]),
    _dpsgd("dpsgd with exact sums of codes", "prototypes without noise",
           "noisy = measured.values.astype(np.float64)", "noisy = self.exact.astype(np.float64)",
           plays=[(CODES, "codes at opposite corners")]),
    _dpsgd("dpsgd with exact class counts", "the surrogate is evened out by exact counts",
           "_even_out(surrogate, counts)",
           "_even_out(surrogate, np.bincount(private_classes, minlength=classes) + 1.0)",
           plays=[("class counts are the noisy ones", ONE)]),
    _dpsgd("dpsgd with shares of 1.1 ε", "three steps spend more than ε together",
           "epsilon = rest_of(budget.epsilon, first.epsilon, second.epsilon)",
           "epsilon = budget.epsilon * 0.5", plays=[(SHARES, "all steps")]),
    # The score of a private model
    _score("exact counts of a score", "the score has no noise", SCORE, _SCORED,
           f"found = {_SCORED.removeprefix('return ')}\n"
           f"    return {_REPLACE}(found, values=private_counts)", (SCORED, ONE)),
    _score("a score with twice its ε", "half of the noise that is due", SCORE, _SCORED,
           _SCORED.replace("budget.rounded_down()", "Budget(2 * budget.epsilon, budget.delta)"),
           (SCORED, ONE)),
    _score("a score with half of its sensitivity", "a record leaves a cell and enters another",
           SCORE, "Sensitivity.of_counts(1, table.records)", "Sensitivity(1, 1.0)", (COUNTS, ONE),
           ("counts of right and wrong", ONE)),
    _score("a score that forgets max_records", "people are counted as records",
           SCORE, "Sensitivity.of_counts(1, table.records)", "Sensitivity.of_counts(1, 1)",
           (COUNTS, PERSON)),
    _score("decisions that look at the rows beside", "one record moves the decisions on others",
           "private_model.py", _POINTS,
           f"{_POINTS}\n    points = points - points.mean(dim=0) + 0.5",
           (COUNTS, "numbers near the middle")),
    _score("class counts beside a score", "a public field of the score is read off the rows",
           SCORE, "units=table.size,", "units=1 + int(table.private_rows()[1].sum()),",
           (SCORED, ONE)),
    _score("exact counts handed out as noisy", "the noise is stated and not used",
           CURATOR, "score_of(table, model, measured.values, measured)",
           "score_of(table, model, count_right(table, model), measured)", (READ, ONE)),
    _score("held-out rows read before the charge", "a crash after the reading would cost nothing",
           CURATOR, _PAID, f"list(table.private_batches())\n        {_PAID}", (READ, ONE)),
    _score("a score that is not charged", "scores without end", CURATOR, _PAID, "paid = None",
           (READ, ONE)),
    _score("no score without rows of a class", "whether there is a score depends on one record",
           SCORE, "    return private_counts\n",
           "    if not private_counts.sum(axis=1).all():\n"
           '        raise __import__("counterveil.errors").errors.DataError("an empty class")\n'
           "    return private_counts\n", (REFUSED, "last of its class")),
)
# fmt: on
