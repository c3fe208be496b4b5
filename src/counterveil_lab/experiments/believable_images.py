"""Whether answers about images can be believed: `believable-images`, and what they look like.

Held-out images are explained towards classes drawn at random, by our search as it is
(`prefer` "believable") and by the search for the nearest, with f and with the veil alone;
`counterveil_lab.image_judges` judges the answers and says what the columns mean. Settings were
chosen on the split of seed 0; the splits of the seeds from 1 on are measured. The first answers of
the first split are in believable-images.npz beside the rows.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from counterveil.encoding import Array
from counterveil.search import Explainer, Explanations
from counterveil.search.options import Guidance, Prefer
from counterveil.veil import Veil
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.images import grey, image_of
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.image_judges import ImageJudges
from counterveil_lab.metrics import timed
from counterveil_lab.results import PICTURES, Row, pictures_of
from counterveil_lab.targets import encoded

FIRST_SEED = 1  # seed 0 is for choosing
EPSILONS = (0.75, 3.0, 0.1, 0.025)
DELTA = 1e-6
FEW = ("believable, ε 0.75", "nearest")  # lines of the small sheet
SHOWN = 20  # answers of each
WAYS: tuple[tuple[Guidance, Prefer], ...] = (
    ("model", "believable"),
    ("model", "nearest"),
    ("surrogate", "believable"),
)


def cases(options: Options) -> Iterator[Case]:
    """Every split, dataset and ε; a run that is cut short has some of each."""
    names = options.names(("mnist", "digits"), ("digits",))
    epsilons = (3.0,) if options.quick else EPSILONS
    return combined(seed=options.splits(FIRST_SEED), dataset=names, epsilon=epsilons)


def measure(dataset: str, epsilon: float, seed: int, *, quick: bool) -> list[Row]:
    """A row for each way to ask the veil of one release."""
    judges = ImageJudges.of(dataset, seed, quick=quick)
    made = releases.release(judges.data, "functional", epsilon, seed, delta=DELTA, quick=quick)
    assert made.veil.record is not None
    head: Row = {**releases.head_of(made, "functional"), "mechanism": "functional"}
    head |= {"delta": DELTA, "basis": "features" if made.veil.record.features else "frequencies"}
    rows = []
    for guidance, prefer in WAYS:
        result, seconds, warm_up = _answers(made.veil, judges, guidance, prefer)
        row: Row = {**head, "guidance": guidance, "prefer": prefer}
        row |= {**judges.score(result, seconds), "warm_up_seconds": warm_up, PICTURES: {}}
        if seed == FIRST_SEED:
            name = f"{dataset} {epsilon} {guidance} {prefer}"
            row[PICTURES] = _pictures(judges, result, name)
        rows.append(row)
    return rows


def _answers(
    veil: Veil, judges: ImageJudges, guidance: Guidance, prefer: Prefer
) -> tuple[Explanations, float, float]:
    """The answers, the seconds that they took, and those of the warm-up."""
    model = judges.f if guidance == "model" else None
    explainer = Explainer(veil, model, guidance=guidance)
    _, warm_up = timed(lambda: explainer.warm_up(prefer=prefer, progress=False))
    result, seconds = timed(
        lambda: explainer.explain(judges.queries, judges.classes, prefer=prefer, progress=False)
    )
    return result, seconds, warm_up


def _pictures(judges: ImageJudges, result: Explanations, name: str) -> dict[str, Array]:
    """The first queries and answers as bytes, and the classes asked for."""
    schema = judges.data.schema
    image, label = image_of(schema), {schema.label.name: schema.label.classes[0]}
    shown = [result.queries.head(SHOWN), result.rows.head(SHOWN)]
    before, after = (
        grey(encoded(each.assign(**label), schema)[0].numpy(), image) for each in shown
    )
    targets = judges.targets[:SHOWN].numpy()
    dataset = judges.data.name
    return {f"{dataset} queries": before, f"{dataset} targets": targets, name: after}


def paint(rows: Sequence[Row], folder: Path) -> None:
    from counterveil_lab import figures

    stored = pictures_of(rows)
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        sheet = figures.image_answers(dataset, stored)
        figures.save(sheet, folder / f"believable-images-{dataset}")
        if dataset == "mnist":
            few = figures.image_answers(dataset, stored, FEW)
            figures.save(few, folder / "believable-images-few")


BELIEVABLE_IMAGES = Experiment(
    "whether answers about images can be believed: other networks judge them; and a sheet of them.",
    cases,
    measure,
    paint=paint,
    chosen_by=(),
)
