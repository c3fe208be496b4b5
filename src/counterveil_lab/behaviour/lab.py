"""Cases of the lab: other people's methods, attacks, and what is measured of answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from counterveil import Explainer
from counterveil.demo.run import reconstruction_error
from counterveil.encoding import Encoding
from counterveil.models import adapt
from counterveil.networks import seeded
from counterveil_lab import believability
from counterveil_lab.attacks import inference
from counterveil_lab.attacks.defences import ByBaseline
from counterveil_lab.attacks.extraction import extract
from counterveil_lab.attacks.protocol import Arena, Size
from counterveil_lab.baselines import Baseline, Cadex, Cchvae, Nice, Revise
from counterveil_lab.behaviour.tiny import IMAGE, MIXED, model, points, rows, veil
from counterveil_lab.datasets import Dataset
from counterveil_lab.evaluation import AS_PUBLISHED, QUERIES, Evaluation
from counterveil_lab.experiments import images, theorem_3
from counterveil_lab.fingerprints import module_of
from counterveil_lab.image_judges import MaxPooled
from counterveil_lab.percentiles import PercentileNetwork
from counterveil_lab.product import runner_up
from counterveil_lab.targets import ANY_OTHER, RECIPES, accuracy, new_target, train_target

SIZE = Size(100, 100, (20,), steps=40, uniform=30, shadows=1, candidates=40, imitate=False)
DATA = Dataset("tiny", MIXED, rows(MIXED, 120), rows(MIXED, 60, seed=1), None, "")


def attack() -> Any:
    """Rows of extraction, membership, linkage and attribute inference, with answers of NICE."""
    others = rows(MIXED, 400, seed=11)
    arena = Arena.own(MIXED, rows(MIXED, 100, seed=10), others, model(MIXED), 0, SIZE)
    defence = ByBaseline("nice", arena, Nice(MIXED, arena.judge, arena.d1))
    members = [*inference.on_model(arena, SIZE), *inference.on_defence(arena, defence, SIZE)]
    more = replace(SIZE, candidates=100)
    hidden = inference.on_attribute(arena, None, more, name="housing")
    stolen = extract(defence, SIZE, settings=[("known", "labels")])
    return [*stolen, *members, *hidden]


def others() -> Any:
    """Answers of published methods, with little training, to a few queries."""
    judge, train, queries = adapt(model(MIXED), MIXED), rows(MIXED, 60), rows(MIXED, 6, seed=4)
    short: Any = {"layers": (6, 3), "epochs": 2}
    methods: list[Baseline] = [
        Cadex(MIXED, judge, train, epochs=100),
        Nice(MIXED, judge, train),
        Cchvae(MIXED, judge, train, shells=20, samples=20, **short),
        Revise(MIXED, judge, train, iterations=20, **short),
    ]
    answers = [each.explain(queries, runner_up(judge, queries), k=2) for each in methods]
    return [[each.found, each.left, each.rows] for each in answers]


def targets() -> Any:
    """How good an f and an autoencoder become, and how long they learn as a rule."""
    trained = [accuracy(train_target(DATA, even=even), DATA) for even in (True, False)]
    return [trained, reconstruction_error(veil(MIXED), DATA.test), RECIPES, ANY_OTHER]


def measure() -> Any:
    """Every metric of answers by Algorithm 2 and by NICE, but for their time."""
    evaluation = Evaluation.of(DATA, model(MIXED), seed=0, queries=10)
    explainer = Explainer(veil(MIXED), evaluation.model)
    method = Nice(MIXED, evaluation.judge, DATA.train)
    scores = [evaluation.score_baseline(method, 10, k) for k in (1, 2)]
    scores.append(evaluation.score_explainer(explainer, iterations=40, **AS_PUBLISHED))
    # Rows that were stored before columns came to them are none the worse for it.
    told = [{name: row[name] for name in row if not name.endswith("_unsnapped")} for row in scores]
    return QUERIES, [{**row, "seconds_per_query": 0} for row in told]


def judges() -> Any:
    """What real rows and boosted trees say of fixed answers; percentiles as a network has them."""
    queries, answers = (rows(MIXED, 12, seed=n)[list(MIXED.columns)] for n in (4, 5))
    reality = believability.Reality(DATA, "granted")
    trees = believability.BoostedTrees(MIXED, DATA.train, 0, max_iter=5).predict_proba(answers)
    network = PercentileNetwork(MIXED, DATA.train)
    ranks = network.percentiles(points(MIXED, 6).float())
    return [reality.judge(queries, answers), reality.near_real, trees, ranks]


def shuffles() -> Any:
    """Rows and copies with one value of another row, and how plausible a population finds both."""
    plausibility = module_of("campaigns.plausibility")
    pairs = plausibility.with_copies(DATA.test, MIXED, 20, np.random.default_rng(0))
    scores = plausibility.plausibility(veil(MIXED), pairs.both)
    return [pairs.copies, pairs.replaced, scores, pairs.judged(scores, [0, 2])]


def pictures() -> Any:
    """Where a network looks, which pixels are noise, and what the network of a judge answers."""
    image, some = IMAGE.images[0], points(IMAGE, 6).float()
    network = seeded(lambda: new_target(IMAGE), 0)
    seen = images.gradcam(network, some, torch.arange(6) % 2, image)
    noise = images.noisy_pixels(some**4, image)
    judged = seeded(lambda: MaxPooled(image, 2), 0)(some)
    return [seen, noise, images.shares_of(seen, "noise", noise), judged]


def distances() -> Any:
    """How far two tables of points are apart, and how good a model is that says given classes."""
    populations = module_of("campaigns.populations")
    one, two = (Encoding(MIXED).encode(rows(MIXED, 60, seed=n)) for n in (0, 1))
    parts = populations.parts_of(MIXED, two)
    told = populations.quality(*np.random.default_rng(0).integers(0, 2, (3, 60)))
    numbers = populations.distances_of_numbers(MIXED, one, two)
    return [numbers, populations.two_way(parts(one), parts(two)), told]


def bias() -> Any:
    """The bias, its error and the spread of given ends of a search."""
    return theorem_3.bias_of(torch.as_tensor(np.random.default_rng(0).random((3, 10, 4))))
