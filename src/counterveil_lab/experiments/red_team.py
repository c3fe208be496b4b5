"""The red team's experiments: extraction, membership, attributes, and the trade-off.

`table-extraction`: the paper's table with fidelity beside accuracy, controls, adaptive attackers,
and an f that names its class alone. A row is one attacker on one defence at one number of queries.
`fig-membership`: the paper's figure with f attacked directly beside f', attacks on the
counterfactuals themselves, linkage, LiRA and RMIA, and two controls. `disjoint`: those called
members were never trained on, so that attacks must be at chance. `overfitted`: f knows 300 rows by
heart, so that they must succeed.
`fig-attribute`: everything else about a person is known. Each number stands beside imputation, the
same classifier without any model's answers, and beside people who were not in the training rows.
Its control `memoriser` is an f that is sure of the rows it has seen and of nothing else.
`fig-tradeoff`: one veil of Adult; the `margin`, how sure of an answer the search must be, and the
guidance move both what answers are worth to people and what they are worth to a thief of f.

`part` tells what was measured together: defences that share a veil, or one by itself. Predictions
alone are the base attacks of every part of `table-extraction`, and the part `none` elsewhere.

Smaller, so that a part of a seed takes about two minutes on one core:

- MNIST: copies learn for 400 steps of 64 rows, not 1,500 of 256; each step is a convolution.
- Substitutes of Purchase and Texas (hundreds of columns, 100 classes): 250 such steps, releases of
  10 epochs (the paper names 500), sets of 6,000 rows, attackers naive, cca and relabel, few shadows
  of f and none of explainers, half the candidates, no f that was overfitted on purpose.
- HomeCredit and these two: the parts of Table 4 and Figure 5, and the search without noise.
- dice-ml takes a second to minutes a query: it is asked for `DICE_SECONDS` a case, and the row says
  how many it answered. It knows no missing values: none of it on Hospital and HomeCredit.
"""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from counterveil.curator import Curator
from counterveil_lab.attacks import inference
from counterveil_lab.attacks.attribute import SENSITIVE
from counterveil_lab.attacks.defences import ByVeil, Defence, build, sharing
from counterveil_lab.attacks.extraction import ATTACKERS, budget_of, extract
from counterveil_lab.attacks.protocol import FULL, QUICK, Arena, Size
from counterveil_lab.attacks.shadows import BY_HEART, overfitted
from counterveil_lab.experiments.runner import SETS_OF_BITS, Case, Experiment, Options, figure
from counterveil_lab.results import Row
from counterveil_lab.targets import Recipe

SUBSTITUTES = ("purchase-substitute", "texas-substitute")
DATASETS = ("adult", "hospital", "homecredit", "mnist", *SUBSTITUTES)
WITH_MEMBERS = ("adult", "hospital", "mnist", *SUBSTITUTES)
WITH_ATTRIBUTE = ("adult", "hospital", "texas-substitute")
PICTURES = frozenset({"mnist", "digits"})
WIDE = frozenset(SETS_OF_BITS)
FEW = WIDE | {"homecredit"}  # get few parts
WITH_MISSING = frozenset({"hospital", "homecredit"})
DICE = ("dice-gradient", "dice-random")
ADULT_ONLY = frozenset({"dice-kdtree"})  # a control of linkage
NEEDS = dict.fromkeys((*DICE, "dice-kdtree"), "dice_ml") | {"dp-model": "opacus"}
Parts = dict[str, tuple[tuple[str, ...], float]]  # the defences of a part, and their ε

FUNCTIONAL = ("functional-model", "functional-surrogate")
RANDOM_LABELS = ("random-labels", "random-labels-surrogate")
EXTRACTION_PARTS: Parts = {
    "dice-gradient": (("dice-gradient",), 0.0),
    "dice-random": (("dice-random",), 0.0),
    "dice-kdtree": (("dice-kdtree",), 0.0),
    "functional-0.75": ((*FUNCTIONAL, *RANDOM_LABELS), 0.75),
    "functional-0.025": (FUNCTIONAL, 0.025),
    "believable-0.75": (("functional-believable",), 0.75),
    "elsewhere-0.75": (("elsewhere-surrogate",), 0.75),
    "paper-0.025": (("paper",), 0.025),
    "dp-model": (("dp-model",), 0.0),
    "no-noise": (("no-noise", "no-noise-published"), 0.0),
}
ON_TABLES = frozenset({*RANDOM_LABELS, "no-noise-published"})  # controls: tables are enough
PICTURE_PARTS = ("functional-0.75", "paper-0.025", "no-noise")
FEW_PARTS = ("functional-0.025", "paper-0.025", "no-noise")
FEW_ATTACKERS = ("naive", "cca", "relabel")
TRADEOFF_SETTINGS = (("known", "probabilities"), ("known", "labels"))
WIDE_SIZE = replace(FULL, rows=6000, epochs=10, imitate=False)
QUICK_PARTS = ("functional-0.75", "no-noise", "dice-kdtree", "dp-model")

# "none": f, and f' from predictions alone.
INFERENCE_PARTS: Parts = {
    "dice-gradient": (("dice-gradient",), 0.0),
    "dice-random": (("dice-random",), 0.0),
    "functional-0.75": (FUNCTIONAL, 0.75),
    "functional-0.025": (("functional-model",), 0.025),
    "believable-0.75": (("functional-believable",), 0.75),
    "dp-model": (("dp-model",), 0.0),
    "paper-0.025": (("paper",), 0.025),
    "no-noise": (("no-noise", "no-noise-published"), 0.0),
    "dice-kdtree": (("dice-kdtree",), 0.0),
    "none": ((), 0.0),
}
QUICK_INFERENCE_PARTS = ("functional-0.75", "no-noise", "dice-kdtree", "none")
# The parts that each control of membership is played on: everywhere, and on Adult also more. No
# network of a wide table is overfitted on purpose: to learn by heart takes 40 times as long there.
Controls = dict[str, tuple[str, ...]]
CONTROLS: Controls = {
    "none": tuple(INFERENCE_PARTS),
    "disjoint": ("none",),
    "overfitted": ("none",),
}
ADULT_CONTROLS = CONTROLS | {
    "disjoint": ("no-noise", "none"),
    "overfitted": ("functional-0.75", "no-noise", "dice-kdtree", "none"),
}
WIDE_CONTROLS = {name: parts for name, parts in CONTROLS.items() if name != "overfitted"}

EPSILON = 0.75
MARGINS = (0.0, 0.6, 0.7, 0.8, 0.9, 0.95)
TRADEOFF_QUERIES = 500


def extraction_parts(dataset: str, quick: bool) -> tuple[str, ...]:
    """What `table-extraction` measures of a dataset."""
    if quick and dataset not in PICTURES | FEW:
        return _parts(dataset, QUICK_PARTS)
    return _parts(dataset, tuple(EXTRACTION_PARTS))


def inference_parts(dataset: str, quick: bool) -> tuple[str, ...]:
    """What `fig-membership` and `fig-attribute` measure of a dataset."""
    if quick and dataset not in PICTURES | FEW:
        return _parts(dataset, QUICK_INFERENCE_PARTS)
    without = DICE if dataset in PICTURES else ()
    parts = _parts(dataset, tuple(INFERENCE_PARTS))
    return tuple(part for part in parts if part not in without)


def _parts(dataset: str, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `parts` that are measured of a dataset."""
    if dataset in PICTURES:
        wanted: tuple[str, ...] = (*DICE, *PICTURE_PARTS, "none")
    elif dataset in FEW:
        wanted = (*DICE, *FEW_PARTS, "none")
    else:
        wanted = tuple(part for part in parts if dataset == "adult" or part not in ADULT_ONLY)
    without = DICE if dataset in WITH_MISSING else ()
    return tuple(part for part in parts if part in wanted and part not in without)


def extraction_cases(options: Options) -> Iterator[Case]:
    """Every part of every dataset; where dice-ml cannot be asked, `why_not` says why."""
    for part in EXTRACTION_PARTS:
        for name in options.names(DATASETS, quick=("adult",)):
            for seed in options.repetitions:
                said = part in DICE and name in WITH_MISSING and not options.quick
                if said or part in extraction_parts(name, options.quick):
                    yield {"dataset": name, "part": part, "seed": seed}


def why_no_extraction(case: Case) -> str | None:
    if case["part"] in DICE and case["dataset"] in WITH_MISSING:
        where = f"without dice-ml on {case['dataset']}"
        return f"{where}: it knows no missing values, and this table has some"
    return why_no_package(case)


def why_no_package(case: Case) -> str | None:
    """Which package a part needs that is not here."""
    package = NEEDS.get(case["part"])
    if package is None or find_spec(package) is not None:
        return None
    needed = f"it needs the package {package}; pip install 'counterveil[lab,dpsgd]'"
    return f"without {case['part']}: {needed}"


def extraction_size(dataset: str, quick: bool) -> Size:
    """Pictures take a convolution a step, and wide tables large networks: fewer steps of both."""
    if quick or dataset not in PICTURES | WIDE:
        return QUICK if quick else FULL
    size, steps = (WIDE_SIZE, 250) if dataset in WIDE else (FULL, 400)
    return replace(size, test=2000, uniform=1000, steps=steps, batch=64)


def measure_extraction(dataset: str, part: str, seed: int, *, quick: bool) -> list[Row]:
    size = extraction_size(dataset, quick)
    arena = Arena.of(dataset, seed, size)
    defences, epsilon = EXTRACTION_PARTS[part]
    if dataset in PICTURES:
        defences = tuple(name for name in defences if name not in ON_TABLES)
    if dataset in WIDE:
        defences = defences[:1]
    attackers = FEW_ATTACKERS if dataset in WIDE else ATTACKERS
    return [
        row
        for defence in sharing(defences, arena, epsilon, size)
        for row in extract(defence, size, epsilon=epsilon, attackers=attackers)
    ]


def membership_cases(options: Options) -> Iterator[Case]:
    """Every part under every control; those of counterfactuals are controlled on Adult."""
    for name in options.names(WITH_MEMBERS, quick=("adult",)):
        more = name == "adult" and not options.quick
        yield from _inference_cases(name, options, ADULT_CONTROLS if more else _controls(name))


def attribute_cases(options: Options) -> Iterator[Case]:
    """Every part without control; the controls play f alone."""
    for name in options.names(WITH_ATTRIBUTE, quick=("adult",)):
        yield from _inference_cases(name, options, _controls(name) | {"memoriser": ("none",)})


def _controls(dataset: str) -> Controls:
    return WIDE_CONTROLS if dataset in WIDE else CONTROLS


def _inference_cases(dataset: str, options: Options, controls: Controls) -> Iterator[Case]:
    for part in inference_parts(dataset, options.quick):
        for control in (name for name, parts in controls.items() if part in parts):
            for seed in options.repetitions:
                yield {"dataset": dataset, "control": control, "part": part, "seed": seed}


def why_no_attribute(case: Case) -> str | None:
    """Which datasets have nothing to infer."""
    if case["dataset"] in WITH_ATTRIBUTE:
        return None
    having = ", ".join(WITH_ATTRIBUTE)
    return f"without {case['dataset']}: only {having} have the attribute {SENSITIVE}"


def inference_size(dataset: str, quick: bool) -> Size:
    """Pictures take a convolution a step, and wide tables large networks: fewer of both."""
    if quick or dataset not in PICTURES | WIDE:
        return QUICK if quick else FULL
    size = extraction_size(dataset, quick)
    if dataset in WIDE:
        return replace(size, queries=(2000,), candidates=1000, shadows=4)
    return replace(FULL, queries=(1000,), candidates=1000, steps=size.steps, batch=size.batch)


def _game(
    dataset: str, control: str, part: str, seed: int, quick: bool
) -> tuple[Arena, Size, Recipe | None, Iterator[Defence]]:
    """The game under a control, its size, how f was trained if unusually, and its defences."""
    size = inference_size(dataset, quick)
    arena = Arena.of(dataset, seed, size, disjoint=control == "disjoint")
    recipe = BY_HEART if control == "overfitted" else None
    arena = overfitted(arena) if recipe else arena
    defences, epsilon = INFERENCE_PARTS[part]
    if dataset in PICTURES or control != "none":
        defences = defences[:1]  # guidance `model` alone: pictures take minutes
    return arena, size, recipe, sharing(defences, arena, epsilon, size)


def _headed(rows: list[Row], defence: str, part: str) -> list[Row]:
    head: Row = {"defence": defence, "epsilon": None}
    if defence != "none":
        head |= budget_of(defence, INFERENCE_PARTS[part][1])
    return [{**head, **row} for row in rows]


def measure_membership(
    dataset: str, control: str, part: str, seed: int, *, quick: bool
) -> list[Row]:
    arena, size, recipe, defences = _game(dataset, control, part, seed, quick)
    if part == "none":
        return _headed(inference.on_model(arena, size, recipe=recipe), "none", part)
    options: dict[str, Any] = {"epsilon": INFERENCE_PARTS[part][1], "recipe": recipe, "veils": {}}
    rows = []
    for defence in defences:
        found = inference.on_defence(arena, defence, size, **options)
        rows += _headed(found, defence.name, part)
    return rows


def measure_attribute(
    dataset: str, control: str, part: str, seed: int, *, quick: bool
) -> list[Row]:
    """Attribute inference with f and with f' of each defence of a part."""
    arena, size, recipe, defences = _game(dataset, control, part, seed, quick)
    if dataset in WIDE and not quick:
        size = replace(size, candidates=4000)  # of some values there are few people
    if control == "memoriser":
        return _headed(inference.on_memoriser(arena, size), "none", part)
    if part == "none":
        found = inference.on_attribute(arena, None, size, recipe=recipe, as_paper=True)
        return _headed(found, "none", part)
    rows = []
    for defence in defences:
        found = inference.on_attribute(arena, defence, size, as_paper=True)
        if defence.name != "dp-model":  # f is that of "none"
            found = [row for row in found if row["target"] != "f"]
        rows += _headed(found, defence.name, part)
    return rows


def tradeoff_cases(options: Options) -> Iterator[Case]:
    for name in options.names(("adult",), quick=("adult",)):
        for seed in options.repetitions:
            yield {"dataset": name, "seed": seed}


def measure_tradeoff(dataset: str, seed: int, *, quick: bool) -> list[Row]:
    """Both guidances at every margin, on one veil."""
    size = replace(QUICK if quick else FULL, queries=(TRADEOFF_QUERIES,))
    arena = Arena.of(dataset, seed, size)
    curator = Curator(arena.schema)
    veil = curator.release(arena.d1, EPSILON, seed=seed, epochs=size.epochs, progress=False)
    rows: list[Row] = []
    for name in FUNCTIONAL:
        defence = build(name, arena, epsilon=EPSILON, size=size, veil=veil)
        assert isinstance(defence, ByVeil)
        for margin in MARGINS[::5] if quick else MARGINS:
            asked = replace(defence, options={"margin": margin})
            head: Row = {"guidance": name.removeprefix("functional-"), "margin": margin}
            found = extract(asked, size, epsilon=EPSILON, settings=TRADEOFF_SETTINGS)
            rows += [{**head, **row} for row in found]
    return rows


TABLE_EXTRACTION = Experiment(
    "how well f can be rebuilt from predictions and counterfactuals.",
    extraction_cases,
    measure_extraction,
    paint=figure("figures_experiments", "extraction_figure", "table-extraction"),
    why_not=why_no_extraction,
    chosen_by=("part",),
)
FIG_MEMBERSHIP = Experiment(
    "can anyone tell who was in the training rows, from f, from f' or from answers?",
    membership_cases,
    measure_membership,
    paint=figure("figures_experiments", "membership_figure", "fig-membership"),
    why_not=why_no_package,
    chosen_by=("part", "control"),
)
FIG_ATTRIBUTE = Experiment(
    "does the model, or what is extracted from it, give away a person's race?",
    attribute_cases,
    measure_attribute,
    paint=figure("figures_experiments", "attribute_figure", "fig-attribute"),
    why_not=why_no_attribute,
    chosen_by=("part",),
)
FIG_TRADEOFF = Experiment(
    "what answers are worth to people, against what they are worth to a thief of f.",
    tradeoff_cases,
    measure_tradeoff,
    paint=figure("figures_experiments", "tradeoff_figure", "fig-tradeoff"),
    chosen_by=(),
)
