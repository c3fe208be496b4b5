"""`paper-readings`: the published method where its text can be read in more than one way.

`as here`: what all other experiments call `paper`. `tied`: one weight matrix for both ways and no
bias, h = σ(Wᵀx) and x̂ = σ(hW), as the paper writes them. `signed`: the objective of rows scaled to
[-1, 1], as the paper's sensitivity assumes. `unweighted f`: a target model whose classes count by
their rows. Each row changes one thing. Answers are those of the published search: the last iterate,
as a legal row, whatever f says of it.
"""

from collections.abc import Iterator, Mapping

from counterveil_lab.evaluation import AS_PUBLISHED, Evaluation
from counterveil_lab.experiments import releases
from counterveil_lab.experiments.runner import Case, Experiment, Options, combined
from counterveil_lab.metrics import reconstruction_error
from counterveil_lab.results import Row
from counterveil_lab.targets import accuracy

UNWEIGHTED = "unweighted f"
OTHERWISE: Mapping[str, releases.Reading] = {"tied": "tied", "signed": "signed"}
READINGS = ("as here", *OTHERWISE, UNWEIGHTED)
DATASETS = ("adult", "digits")
EPSILONS = (0.025, 0.75)
QUICK_QUERIES = 20
QUERIES = 500


def reading_cases(options: Options) -> Iterator[Case]:
    names = options.names(DATASETS, quick=("digits",))
    epsilons = EPSILONS[-1:] if options.quick else EPSILONS
    seeds = options.repetitions
    return combined(seed=seeds, dataset=names, epsilon=epsilons, reading=READINGS)


def measure_reading(
    dataset: str, epsilon: float, reading: str, seed: int, *, quick: bool
) -> list[Row]:
    data = releases.data_for(dataset, seed, quick=quick)
    model = releases.target_for(data, seed, even=reading != UNWEIGHTED)
    evaluation = Evaluation.of(data, model, seed, QUICK_QUERIES if quick else QUERIES)
    read = OTHERWISE.get(reading)
    made = releases.release(data, "paper", epsilon, seed, reading=read, quick=quick)
    _, explainer = next(releases.explainers_for(made.veil, model))
    row: Row = {"method": "counterveil", "mechanism": "paper", "epochs": made.epochs}
    row |= {"accuracy": accuracy(model, data), "mse": reconstruction_error(made.veil, data.test)}
    return [row | evaluation.score_explainer(explainer, **AS_PUBLISHED)]


PAPER_READINGS = Experiment(
    "the published method as its text can be read otherwise: tied weights, other scales, other f.",
    reading_cases,
    measure_reading,
    chosen_by=("reading",),
)
