"""Published methods in the experiments: which are asked, and how many questions they get.

dice-ml goes row by row, and C-CHVAE searches a thousand shells for a query that it cannot answer:
on wide data these get fewer questions, and a row says how many (`queries`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from counterveil.schema import Schema
from counterveil_lab.baselines import Baseline, Cadex, Cchvae, Dice, Revise
from counterveil_lab.baselines.dice import Method
from counterveil_lab.experiments.complete import CompleteDice
from counterveil_lab.experiments.exam import Exam
from counterveil_lab.experiments.releases import vae_for
from counterveil_lab.results import Row

PARTS = ("cadex", "vae", "dice")
GRADIENT_WIDTH = 200  # encoded numbers
WIDE_SHELLS = 200  # of C-CHVAE; the last has an L1 norm of 20 where codes are standard normal


@dataclass(frozen=True)
class Asked:
    """How many questions each method gets."""

    cadex: int
    cchvae: int
    revise: int
    dice: int


ONE_ANSWER = {
    "mixed": Asked(cadex=500, cchvae=500, revise=500, dice=8),
    "image": Asked(cadex=200, cchvae=40, revise=100, dice=4),
    "binary": Asked(cadex=200, cchvae=40, revise=100, dice=3),
}
TEN_ANSWERS = {
    "mixed": Asked(cadex=100, cchvae=100, revise=100, dice=2),
    "image": Asked(cadex=25, cchvae=25, revise=25, dice=1),
    "binary": Asked(cadex=25, cchvae=25, revise=25, dice=1),
}
QUICK = Asked(cadex=5, cchvae=2, revise=2, dice=1)


def peers(
    exam: Exam, part: str, seed: int, asked: Asked, *, quick: bool
) -> Iterator[tuple[Baseline, int, Row]]:
    """Each method of a part with the number of its questions, and what its row must say of it."""
    data, judge = exam.data, exam.judge
    schema, train = data.schema, data.train
    if part == "cadex":
        for threshold in (0.0, 0.5) if schema.family == "mixed" else (0.0,):  # of categories
            yield Cadex(schema, judge, train, threshold=threshold), asked.cadex, {}
    if part == "vae":
        vae, epochs = vae_for(data, seed, quick=quick)
        shells = 20 if quick else 1000 if schema.family == "mixed" else WIDE_SHELLS
        yield (Cchvae(schema, judge, train, seed=seed, vae=vae, shells=shells), asked.cchvae,
               {"vae_epochs": epochs, "shells": shells})  # fmt: skip
        iterations = 50 if quick else 1000
        yield (Revise(schema, judge, train, seed=seed, vae=vae, iterations=iterations),
               asked.revise, {"vae_epochs": epochs})  # fmt: skip
    if part == "dice":
        yield dice(exam, dice_methods(schema)[0], seed), asked.dice, {}


def dice_methods(schema: Schema) -> tuple[Method, ...]:
    """The methods of dice-ml to ask, best first; its gradient takes minutes a query if wide."""
    return ("gradient", "random") if schema.width <= GRADIENT_WIDTH else ("random",)


def dice(exam: Exam, method: Method, seed: int) -> Baseline:
    """dice-ml, also where values may be missing."""
    schema, train = exam.data.schema, exam.data.train
    if any(getattr(feature, "missing", False) for feature in schema.features):
        return CompleteDice(schema, exam.model, train, seed=seed, method=method)
    return Dice(schema, exam.judge, train, seed=seed, method=method)


def why_no_dice() -> str | None:
    """Why dice-ml cannot be asked."""
    if find_spec("dice_ml") is None:
        return "without dice-ml: it needs pip install 'counterveil[lab]'"
    return None
