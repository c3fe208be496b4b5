"""The red team's experiments: extraction, membership, attributes, and the trade-off.

`table-extraction`: how well f can be rebuilt from predictions and counterfactuals. The paper's
table, with what it lacks: fidelity beside accuracy, controls, adaptive attackers, and an f that
names its class alone. Every defence meets every attacker of `attacks.extraction` at 250 to 2,000
queries; a row is one of them.

`fig-membership`: can anyone tell who was in the training rows, from f, from f' or from answers? The
paper's figure with f attacked directly beside f', attacks on the counterfactuals themselves,
linkage of private rows, modern attackers (LiRA, RMIA), and two controls. `disjoint`: those called
members were never trained on, so that every attack must be at chance. `overfitted`: f knows 300
rows by heart, so that attacks must succeed, and chance elsewhere means something.

`fig-attribute`: does the model, or what is extracted from it, give away a person's race? Everything
else about the person is known. Each number stands beside imputation, the same classifier without
any model's answers, and beside people who were not in the training rows. Its control `memoriser` is
an f that is sure of the rows it has seen and of nothing else: there the attack must succeed.

`fig-tradeoff`: what answers are worth to people, against what they are worth to a thief of f. One
veil of Adult; the `margin`, how sure of an answer the search must be, and the guidance move both.

`part` tells what was measured together: defences that share a veil, or one by itself. Pictures get
fewer queries, steps and settings; dice-ml takes seconds a query and is asked on Adult alone. Of
membership and attributes the paper prints no numbers, only that attacks nearly fail on all but
Purchase and Texas at ε = .025 and 2,000 queries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from counterveil.curator import Curator
from counterveil.veil import Veil
from counterveil_lab.attacks import controls, inference
from counterveil_lab.attacks.attribute import SENSITIVE
from counterveil_lab.attacks.defences import ByVeil, build, sharing
from counterveil_lab.attacks.extraction import SETTINGS, budget_of, extract
from counterveil_lab.attacks.headlines import (
    attribute_sentence,
    attribute_table,
    linkage_sentence,
    linked,
    sentence,
    strongest,
)
from counterveil_lab.attacks.protocol import FULL, QUICK, Arena, Size
from counterveil_lab.attacks.shadows import BY_HEART, overfitted
from counterveil_lab.attacks.verdicts import headline
from counterveil_lab.experiments.runner import Case, Experiment, Options
from counterveil_lab.results import Row

DATASETS = ("adult", "hospital", "mnist")
WITH_ATTRIBUTE = ("adult", "hospital")
PICTURES = frozenset({"mnist", "digits"})
# dice-ml takes no missing values, and no cell of a table as wide as Hospital holds 5 rows (cf-k).
ADULT_ONLY = frozenset({"dice-gradient", "dice-kdtree", "cf-k"})
NEEDS = {"dice-gradient": "dice_ml", "dice-kdtree": "dice_ml", "dp-model": "opacus"}
Parts = dict[str, tuple[tuple[str, ...], float]]  # the defences of a part, and their ε

FUNCTIONAL = ("functional-model", "functional-surrogate")
RANDOM_LABELS = ("random-labels", "random-labels-surrogate")
EXTRACTION_PARTS: Parts = {
    "dice-gradient": (("dice-gradient",), 0.0),
    "dice-kdtree": (("dice-kdtree",), 0.0),
    "functional-0.75": ((*FUNCTIONAL, *RANDOM_LABELS), 0.75),
    "functional-0.025": (FUNCTIONAL, 0.025),
    "elsewhere-0.75": (("elsewhere-surrogate",), 0.75),
    "paper-0.025": (("paper",), 0.025),
    "dp-model": (("dp-model",), 0.0),
    "no-noise": (("no-noise", "no-noise-published"), 0.0),
    "cf-k": (("cf-k",), 0.0),
}
ON_TABLES = frozenset({*RANDOM_LABELS, "no-noise-published"})  # controls: tables are enough
PICTURE_PARTS = ("functional-0.75", "paper-0.025", "no-noise")
PICTURE_SETTINGS = (("known", "probabilities"), ("known", "labels"))
QUICK_PARTS = ("functional-0.75", "no-noise", "dice-kdtree", "dp-model", "cf-k")

# "none": f, and f' from predictions alone.
INFERENCE_PARTS: Parts = {
    "dice-gradient": (("dice-gradient",), 0.0),
    "functional-0.75": (FUNCTIONAL, 0.75),
    "functional-0.025": (("functional-model",), 0.025),
    "dp-model": (("dp-model",), 0.0),
    "paper-0.025": (("paper",), 0.025),
    "no-noise": (("no-noise", "no-noise-published"), 0.0),
    "dice-kdtree": (("dice-kdtree",), 0.0),
    "cf-k": (("cf-k",), 0.0),
    "none": ((), 0.0),
}
PICTURE_INFERENCE_PARTS = (*PICTURE_PARTS, "none")
QUICK_INFERENCE_PARTS = ("functional-0.75", "no-noise", "dice-kdtree", "none")
# The parts that each control of membership is played on: everywhere, and on Adult also more.
CONTROLS = {"none": tuple(INFERENCE_PARTS), "disjoint": ("none",), "overfitted": ("none",)}
ADULT_CONTROLS = CONTROLS | {
    "disjoint": ("no-noise", "none"),
    "overfitted": ("functional-0.75", "no-noise", "dice-kdtree", "none"),
}

EPSILON = 0.75
MARGINS = (0.0, 0.6, 0.7, 0.8, 0.9, 0.95)
TRADEOFF_QUERIES = 500


def parts_of(
    dataset: str, quick: bool, parts: Parts, of_pictures: Sequence[str], if_quick: Sequence[str]
) -> tuple[str, ...]:
    """What is measured of a dataset: `ADULT_ONLY` is not for others."""
    if dataset in PICTURES:
        return tuple(of_pictures)
    chosen = if_quick if quick else tuple(parts)
    return tuple(part for part in chosen if dataset == "adult" or part not in ADULT_ONLY)


def extraction_parts(dataset: str, quick: bool) -> tuple[str, ...]:
    """The parts of `table-extraction` for a dataset."""
    return parts_of(dataset, quick, EXTRACTION_PARTS, PICTURE_PARTS, QUICK_PARTS)


def inference_parts(dataset: str, quick: bool) -> tuple[str, ...]:
    """The parts of `fig-membership` and `fig-attribute` for a dataset."""
    chosen = PICTURE_INFERENCE_PARTS, QUICK_INFERENCE_PARTS
    return parts_of(dataset, quick, INFERENCE_PARTS, *chosen)


def extraction_cases(options: Options) -> Iterator[Case]:
    """Every part of every dataset."""
    for part in EXTRACTION_PARTS:
        for name in options.names(DATASETS, quick=("adult",)):
            for seed in options.repetitions:
                if part in extraction_parts(name, options.quick):
                    yield {"dataset": name, "part": part, "seed": seed}


def why_no_package(case: Case) -> str | None:
    """Which package a part needs that is not here."""
    package = NEEDS.get(case["part"])
    if package is None or find_spec(package) is not None:
        return None
    needed = f"it needs the package {package}; pip install 'counterveil[lab,dpsgd]'"
    return f"without {case['part']}: {needed}"


def extraction_size(dataset: str, quick: bool) -> Size:
    """Pictures take a convolution a step: fewer of them."""
    size = QUICK if quick else FULL
    if dataset in PICTURES and not quick:
        return replace(size, queries=(250, 1000), test=2000, uniform=1000, steps=400, batch=64)
    return size


def measure_extraction(dataset: str, part: str, seed: int, *, quick: bool) -> list[Row]:
    """All attackers on the defences of one part."""
    size = extraction_size(dataset, quick)
    arena = Arena.of(dataset, seed, size)
    defences, epsilon = EXTRACTION_PARTS[part]
    settings = PICTURE_SETTINGS if dataset in PICTURES else SETTINGS
    if dataset in PICTURES:
        defences = tuple(name for name in defences if name not in ON_TABLES)
    return [
        row
        for defence in sharing(defences, arena, epsilon, size)
        for row in extract(defence, size, epsilon=epsilon, settings=settings)
    ]


def membership_cases(options: Options) -> Iterator[Case]:
    """Every part under every control; those of counterfactuals are controlled on Adult."""
    for part in INFERENCE_PARTS:
        for name in options.names(DATASETS, quick=("adult",)):
            more = name == "adult" and not options.quick
            for control, parts in (ADULT_CONTROLS if more else CONTROLS).items():
                for seed in options.repetitions:
                    if part in parts and part in inference_parts(name, options.quick):
                        case = {"dataset": name, "control": control, "part": part}
                        yield {**case, "seed": seed}


def attribute_cases(options: Options) -> Iterator[Case]:
    """Every part without control; the controls play f alone."""
    for part in INFERENCE_PARTS:
        for name in options.names(WITH_ATTRIBUTE, quick=("adult",)):
            for control in ("none", "disjoint", "overfitted", "memoriser"):
                for seed in options.repetitions:
                    played = control == "none" or part == "none"
                    if played and part in inference_parts(name, options.quick):
                        case = {"dataset": name, "control": control, "part": part}
                        yield {**case, "seed": seed}


def why_no_attribute(case: Case) -> str | None:
    """Which datasets have nothing to infer."""
    if case["dataset"] in WITH_ATTRIBUTE:
        return None
    having = ", ".join(WITH_ATTRIBUTE)
    return f"without {case['dataset']}: only {having} have the attribute {SENSITIVE}"


def inference_size(dataset: str, quick: bool) -> Size:
    """Pictures take a convolution a step, and dice-ml seconds a query: fewer of them."""
    size = replace(QUICK if quick else FULL, slow_queries=10 if quick else 50)
    if dataset in PICTURES and not quick:
        return replace(size, queries=(1000,), steps=400, batch=64, candidates=1000)
    return size


def measure_membership(
    dataset: str, control: str, part: str, seed: int, *, quick: bool
) -> list[Row]:
    """Every attack on the defences of one part."""
    size = inference_size(dataset, quick)
    arena = Arena.of(dataset, seed, size, disjoint=control == "disjoint")
    recipe = BY_HEART if control == "overfitted" else None
    if recipe is not None:
        arena = overfitted(arena)
    if part == "none":
        return _undefended(inference.on_model(arena, size, recipe=recipe))
    defences, epsilon = INFERENCE_PARTS[part]
    if dataset in PICTURES or control != "none":
        defences = defences[:1]  # guidance `model` alone: pictures take minutes
    shared: dict[int, Veil] = {}
    return [
        {"defence": defence.name, **budget_of(defence.name, epsilon), **row}
        for defence in sharing(defences, arena, epsilon, size)
        for row in inference.on_defence(
            arena, defence, size, epsilon=epsilon, recipe=recipe, veils=shared
        )
    ]


def measure_attribute(
    dataset: str, control: str, part: str, seed: int, *, quick: bool
) -> list[Row]:
    """Attribute inference with f and with f' of each defence of a part."""
    size = inference_size(dataset, quick)
    arena = Arena.of(dataset, seed, size, disjoint=control == "disjoint")
    recipe = BY_HEART if control == "overfitted" else None
    if recipe is not None:
        arena = overfitted(arena)
    if control == "memoriser":
        return _undefended(inference.on_memoriser(arena, size))
    if part == "none":
        return _undefended(inference.on_attribute(arena, None, size, recipe=recipe))
    defences, epsilon = INFERENCE_PARTS[part]
    return [
        {"defence": defence.name, **budget_of(defence.name, epsilon), **row}
        for defence in sharing(defences, arena, epsilon, size)
        for row in inference.on_attribute(arena, defence, size)
        if row["target"] != "f" or defence.name == "dp-model"  # otherwise f is that of "none"
    ]


def _undefended(rows: list[Row]) -> list[Row]:
    return [{"defence": "none", "epsilon": None, **row} for row in rows]


def tradeoff_cases(options: Options) -> Iterator[Case]:
    """Adult."""
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
            found = extract(asked, size, epsilon=EPSILON, settings=PICTURE_SETTINGS)
            guidance = name.removeprefix("functional-")
            rows += [{"guidance": guidance, "margin": margin, **row} for row in found]
    return rows


def _part(case: Case) -> Collection[str]:
    return (case["part"],)


def _part_or_control(case: Case) -> Collection[str]:
    return {case["part"], case["control"]} if case["control"] != "none" else (case["part"],)


def extraction_sentences(rows: Sequence[Row]) -> list[str]:
    """What the numbers say, and whether the controls held."""
    return [*headline(rows).sentences, *controls.spoken(controls.of_extraction(rows))]


def membership_sentences(rows: Sequence[Row]) -> list[str]:
    """The same of membership and linkage."""
    told = [*map(sentence, strongest(rows)), *map(linkage_sentence, linked(rows))]
    return [*told, *controls.spoken(controls.of_inference(rows))]


def attribute_sentences(rows: Sequence[Row]) -> list[str]:
    """The same of attributes."""
    told = [attribute_sentence(line) for line in attribute_table(rows)]
    return [*told, *controls.spoken(controls.of_attribute(rows))]


def paint_extraction(rows: Sequence[Row], folder: Path) -> None:
    """The figure, from stored rows."""
    from counterveil_lab.attacks.pictures import extraction_figure
    from counterveil_lab.figures import save

    save(extraction_figure(rows), folder / "table-extraction")


def paint_tradeoff(rows: Sequence[Row], folder: Path) -> None:
    """The figure, from stored rows."""
    from counterveil_lab.attacks.pictures import tradeoff_figure
    from counterveil_lab.figures import save

    save(tradeoff_figure(rows), folder / "fig-tradeoff")


def paint_membership(rows: Sequence[Row], folder: Path) -> None:
    """The figure, from stored rows."""
    from counterveil_lab.attacks.forest import membership_figure
    from counterveil_lab.figures import save

    save(membership_figure(rows), folder / "fig-membership")


def paint_attribute(rows: Sequence[Row], folder: Path) -> None:
    """The figure, from stored rows."""
    from counterveil_lab.attacks.forest import attribute_figure
    from counterveil_lab.figures import save

    save(attribute_figure(rows), folder / "fig-attribute")


TABLE_EXTRACTION = Experiment(
    "how well f can be rebuilt from predictions and counterfactuals.",
    extraction_cases,
    measure_extraction,
    paint=paint_extraction,
    sentences=extraction_sentences,
    why_not=why_no_package,
    named=_part,
)
FIG_MEMBERSHIP = Experiment(
    "can anyone tell who was in the training rows, from f, from f' or from answers?",
    membership_cases,
    measure_membership,
    paint=paint_membership,
    sentences=membership_sentences,
    named=_part_or_control,
)
FIG_ATTRIBUTE = Experiment(
    "does the model, or what is extracted from it, give away a person's race?",
    attribute_cases,
    measure_attribute,
    paint=paint_attribute,
    sentences=attribute_sentences,
    why_not=why_no_attribute,
    named=_part,
)
FIG_TRADEOFF = Experiment(
    "what answers are worth to people, against what they are worth to a thief of f.",
    tradeoff_cases,
    measure_tradeoff,
    paint=paint_tradeoff,
    named=None,
)
