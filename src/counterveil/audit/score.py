"""Games and checks of the noisy score of a private model on held-out rows.

The adversary sees every noisy count, by fast noise and by the curator's own. The model is fixed and
public, and a real one: what a release makes of D without its noise.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from counterveil.audit import neighbours, releases
from counterveil.audit.checks import Dice, moves, too_quiet
from counterveil.audit.concentrated import overspent
from counterveil.audit.functional import Instrument, Moved, differing, games_on_sums
from counterveil.audit.game import Check, Effort, Game
from counterveil.audit.neighbours import CLASSES
from counterveil.audit.pair import Pair
from counterveil.audit.releases import Find, Finding, Run
from counterveil.curator import Curator
from counterveil.curator.functional import measure
from counterveil.curator.score import measure_score
from counterveil.errors import InputError
from counterveil.population import population_of
from counterveil.privacy import Budget, Level, Statement
from counterveil.private_model import PrivateModel
from counterveil.schema import Numeric

NOTHING = Statement(level=Level.NONE, mechanism="a fixed model", epsilon=None)
MODEL = Budget(100.0)  # of the veil
NUMBER = (Numeric(name="x", lower=0, upper=100),)


def model_of(pair: Pair) -> PrivateModel:
    """The model that is scored: of a veil of D whose noise happened to be 0, the surest there is.

    A veil is fixed before the first held-out row is read, and the promise holds for every veil.
    """
    record = measure(pair.tables[0], replace(pair, planned=None).plan(MODEL), Instrument())
    population = population_of(pair.schema, record)
    made = releases.networks_of(population, pair.schema)
    known: Any = {"class_share": population.class_share, "population": lambda: population}
    return PrivateModel(pair.schema, made.surrogate, NOTHING, **known)


def many_numbers() -> Pair:
    """The replaced record lies far from all others, which the model tells apart by a little.

    The cell of a record must depend on this record alone, or all the others move with it.
    """
    return _numbers("numbers near the middle", 400, {"x": 0.0}, {"x": 100.0})


def no_label() -> Pair:
    """The replaced record has a label that is not in the schema, or one that is.

    At ε = 1 one record less, if that were known, would leave fewer bins.
    """
    return _numbers("a label that is none", 119, {"label": "perhaps"}, {"label": "yes"})


def eight_or_nine() -> Pair:
    """Rows where the decision turns, eight of them or nine: floats sum up the two otherwise."""
    nine = [{"x": 50.0, "label": CLASSES[row % 2]} for row in range(9)]
    first, second = ({"x": 50.0, "label": label} for label in ("no", "perhaps"))
    name = "eight rows, and one whose label is none"
    return neighbours.pair_of(name, NUMBER, nine[1:], first, second)


def _numbers(name: str, others: int, first: dict[str, Any], second: dict[str, Any]) -> Pair:
    records = [{"x": 45.0 + row % 11, "label": CLASSES[row % 2]} for row in range(others)]
    usual = {"x": 0.0, "label": "no"}
    return neighbours.pair_of(name, NUMBER, records, usual | first, usual | second)


PAIRS = (
    *(neighbours.one_feature, neighbours.persons, many_numbers, no_label, eight_or_nine),
    *(neighbours.bits, neighbours.images),
)


def listened(pair: Pair, budget: Budget) -> tuple[Instrument, Instrument]:
    """What an instrument hears of the exact counts of D and of D'."""
    one, two, model = Instrument(), Instrument(), model_of(pair)
    for table, instrument in zip(pair.tables, (one, two), strict=True):
        measure_score(table, model, budget, instrument)
    return one, two


def games(budget: Budget, effort: Effort) -> Iterator[Game]:
    def moved(pair: Pair, budget: Budget) -> list[Moved]:
        return differing(*listened(pair, budget))

    each = partial(games_on_sums, "score", moved, budget, effort)
    yield from each("counts of the score", PAIRS, seed=("score",))
    yield from each("counts, the curator's sampler", (neighbours.one_feature,))


def checks(budget: Budget) -> Iterator[Check]:
    each = partial(releases.checks_of, "score", budget)
    numbers: dict[str, Find] = {
        "the score holds noise alone": noise_alone,
        "counts move as stated": lambda pair, budget: moves(*listened(pair, budget)),
        "the noise is enough": lambda pair, budget: too_quiet(listened(pair, budget)[0]),
    }
    yield from each(numbers, PAIRS)
    yield from each({"rows are read once, after the charge": read_once}, (neighbours.one_feature,))
    yield from each({"no table is refused": refusals}, neighbours.LAST_ONES)
    if not budget.delta:
        yield from each({"the command": command_differs}, (neighbours.unfit, neighbours.persons))


def noise_alone(pair: Pair, budget: Budget) -> Finding:
    """What a score holds besides answers of the noise source, or asks for beyond the budget."""
    files, model = [], model_of(pair)
    for table in pair.tables:
        dice = Dice()
        score = measure_score(table, model, budget, dice)
        files.append(score.to_json())
        if len(dice.answers) != 1 or score.measurement is not dice.answers[0]:
            yield "the score is not one answer of the noise source"
        if overspent(dice.asked, budget):
            yield "the score asks for more than its budget"
    if files[0] != files[1]:
        yield "with the same answers of the noise the scores of D and D' differ"


def read_once(pair: Pair, budget: Budget) -> Finding:
    """Whether a score reads the rows but once, after it has charged what it states."""
    with tempfile.TemporaryDirectory() as folder:
        curator = releases.WatchedCurator(pair, budget, folder)
        score = curator.score(pair.one, model_of(pair), budget.epsilon, budget.delta)
        readings, charges = curator.charges_at_readings, curator.charges()
    charge = budget.epsilon, budget.delta, score.digest
    yield from releases.charged_first(readings, charges, 1, charge)
    if score.measurement is None:
        yield "the score has no noise"
    elif (score.counts != score.measurement.values).any():
        yield "the score tells other counts than the noisy ones"


def refusals(pair: Pair, budget: Budget) -> Finding:
    """Which of both tables cannot be scored."""
    for frame, name in ((pair.one, "D"), (pair.two, "D'")):
        try:
            Curator(pair.schema).score(frame, model_of(pair), budget.epsilon, budget.delta)
        except InputError:
            yield f"a score of {name} is refused"


def command_differs(pair: Pair, budget: Budget, run: Run = releases.run_command) -> Finding:
    """What `counterveil model score` shows of D and of D' that differs, but for noisy numbers."""
    words = f"model score --veil x.veil --epsilon {budget.epsilon!r} --out x.json"
    shown, veil = [], releases.release(pair, budget, "functional", 0)
    for code, _, complaints, left in releases.heard(pair, words, run, veil):
        left.pop("x.json", None)
        shown.append((code, "", complaints, left))
    yield from releases.said_otherwise(shown)
