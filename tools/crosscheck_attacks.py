"""Our inference attacks beside those of established packages, on the very same inputs.

The packages go into an environment of their own, for they pin and pull much; none needs torch:

    python -m venv cross && cross/bin/pip install numpy scipy scikit-learn six tqdm pandas packaging
    cross/bin/pip install --no-deps adversarial-robustness-toolbox==1.20.1 privacy-meter==1.0.1

Then, in the environment of this project and in the other one:

    python tools/crosscheck_attacks.py dump attacks.npz
    cross/bin/python tools/crosscheck_attacks.py check attacks.npz .
    counterveil-lab import --overwrite crosscheck-attacks.json

| ours | theirs |
|---|---|
| lira (offline: one spread for all rows) | privacy-meter's test on rescaled logits, row by row |
| learning (the paper's network) | ART's black-box membership inference, gradient boosting |
| attribute, imputation | ART's baseline attribute inference, random forest |
| attribute with f's probabilities | ART's black-box attribute inference, with f's decisions |

f is the overfitted control, so that there is something to agree about.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]


def dump(path: Path) -> None:
    """What our attacks were given, and what they made of it."""
    import torch

    from counterveil_lab.attacks import attribute, membership
    from counterveil_lab.attacks.attribute import HiddenValues, balanced, sensitive
    from counterveil_lab.attacks.protocol import FULL, Arena
    from counterveil_lab.attacks.shadows import (
        BY_HEART,
        Candidates,
        Evidence,
        Pool,
        overfitted,
        shadows_of,
    )

    torch.set_num_threads(1)
    full = Arena.of("adult", 0, FULL)
    arena = overfitted(full)
    people, pool = Candidates.of(arena, 300), Pool.of(arena, 2000)
    networks, inside = shadows_of(arena, pool, 16, BY_HEART)
    evidence = Evidence.of(
        people, pool, inside, lambda points: arena.ask(points).log(), networks.log_proba
    )
    content: Arrays = {
        "is_member": people.is_member,
        "classes": people.classes.numpy(),
        "target": evidence.target.numpy(),
        "shadows": evidence.shadows.numpy(),
        "pool_classes": pool.classes.numpy(),
        "pool_shadows": evidence.pool_shadows.numpy()[:3],
        "inside": inside.numpy()[:3],
        "our_lira": membership.by_lira(evidence).scores,
        "our_learning": membership.by_learning(evidence.first(3), 600, 0).scores,
    }

    def asked(points: torch.Tensor) -> torch.Tensor:
        return full.ask(points).log()

    feature = sensitive(full.schema)
    assert feature is not None
    rows = attribute.infer(full, [({"f": asked}, [asked])], [full.d3], 4000)
    ours = next(row for row in rows if row["value"] == "all" and row["who"] == "members")
    for name, frame in (("taught", full.d3), ("asked", full.members(4000))):
        group = HiddenValues.of(frame, full.schema, feature)
        own = group.versions[torch.arange(len(group.truth)), group.truth]
        content |= {f"{name}_known": group.known.numpy(), f"{name}_truth": group.truth.numpy(),
                    f"{name}_told": asked(own).exp().numpy()}  # fmt: skip
    content |= {"our_imputation": ours["imputation"], "our_attribute": ours["balanced_accuracy"]}
    assert balanced(content["asked_truth"], content["asked_truth"], np.arange(5)) == 1.0
    np.savez_compressed(path, commit=_commit(), **content)


def check(path: Path, folder: Path) -> None:
    """What the packages make of it, stored and printed."""
    warnings.simplefilter("ignore")
    with np.load(path) as file:
        content = dict(file)
    rows = [_lira(content), _learning(content), *_attribute(content)]
    command = "tools/crosscheck_attacks.py dump; check"
    document = {"experiment": "crosscheck-attacks", "command": command,
                "commit": str(content["commit"]), "rows": rows}  # fmt: skip
    (folder / "crosscheck-attacks.json").write_text(json.dumps(document, indent=1) + "\n")
    for row in rows:
        sys.stdout.write(f"{row}\n")


def _commit() -> str:
    """Of the code whose attacks were dumped."""
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True,
                          check=False)  # fmt: skip
    return told.stdout.strip() or "unknown"


def _lira(content: Arrays) -> dict[str, Any]:
    from privacy_meter.hypothesis_test import logit_rescale_threshold_func

    own = content["classes"]
    at = np.arange(len(own))
    losses = -content["shadows"][:, at, own].T.astype(float)
    alphas = np.linspace(0.001, 0.999, 999)
    thresholds = logit_rescale_threshold_func(np.maximum(losses, 1e-5), alphas)
    loss = np.maximum(-content["target"][at, own], 1e-5)
    passed = loss[None] <= thresholds
    first = np.where(passed.any(axis=0), alphas[passed.argmax(axis=0)], 1.0)
    return _ranks("lira", "privacy-meter", content["our_lira"], -first, content["is_member"])


def _learning(content: Arrays) -> dict[str, Any]:
    from art.attacks.inference.membership_inference import MembershipInferenceBlackBox

    sorted_shadows = -np.sort(-np.exp(content["pool_shadows"]), axis=2)
    inside, outside = content["inside"], ~content["inside"]
    labels = np.broadcast_to(content["pool_classes"], inside.shape)
    attack = MembershipInferenceBlackBox(_classifier(), attack_model_type="gb")
    attack.fit(
        x=None, y=labels[inside], test_x=None, test_y=labels[outside],
        pred=sorted_shadows[inside], test_pred=sorted_shadows[outside],
    )  # fmt: skip
    told = -np.sort(-np.exp(content["target"]), axis=1)
    theirs = attack.infer(x=None, y=content["classes"], pred=told, probabilities=True)[:, -1]
    return _ranks("learning", "ART", content["our_learning"], theirs, content["is_member"])


def _ranks(attack: str, package: str, ours: Any, theirs: Any, truth: Any) -> dict[str, Any]:
    from scipy.stats import spearmanr
    from sklearn.metrics import roc_auc_score

    own, other = float(roc_auc_score(truth, ours)), float(roc_auc_score(truth, theirs))
    return {"attack": attack, "package": package, "measure": "auc", "ours": own, "theirs": other,
            "difference": own - other, "rank_correlation": float(spearmanr(ours, theirs)[0]),
            "people": len(truth)}  # fmt: skip


def _attribute(content: Arrays) -> list[dict[str, Any]]:
    """The packages weigh no classes: they get as many rows of each value, drawn with repeats."""
    from art.attacks.inference.attribute_inference import (
        AttributeInferenceBaseline,
        AttributeInferenceBlackBox,
    )  # fmt: skip
    from sklearn.metrics import balanced_accuracy_score

    rng = np.random.default_rng(0)
    truth = content["taught_truth"]
    drawn = np.concatenate([rng.choice(np.flatnonzero(truth == value), 2000)
                            for value in np.unique(truth)])  # fmt: skip

    def table(name: str, rows: Any) -> Any:
        values = content[f"{name}_truth"][rows]
        return np.concatenate([content[f"{name}_known"][rows], values[:, None]], axis=1)

    everyone = np.arange(len(content["asked_truth"]))
    taught, asked = table("taught", drawn), table("asked", everyone)
    last = taught.shape[1] - 1
    values = sorted(set(truth.tolist()))
    rows = []
    for attack, ours in (("imputation", "our_imputation"), ("attribute", "our_attribute")):
        if attack == "imputation":
            one = AttributeInferenceBaseline(attack_model_type="rf", attack_feature=last,
                                             is_continuous=False)  # fmt: skip
            one.fit(taught)
            said = one.infer(asked[:, :last], values=values)
        else:
            both = AttributeInferenceBlackBox(
                _remembered(taught, content["taught_told"][drawn]), attack_model_type="rf",
                attack_feature=last, is_continuous=False,
            )  # fmt: skip
            both.fit(taught)
            decided = content["asked_told"].argmax(axis=1)[:, None]
            said = both.infer(asked[:, :last], pred=decided, values=values)
        theirs = float(balanced_accuracy_score(asked[:, last], np.asarray(said).ravel()))
        own = float(content[ours])
        rows.append({"attack": attack, "package": "ART", "measure": "balanced accuracy",
                     "ours": own, "theirs": theirs, "difference": own - theirs,
                     "people": len(asked)})  # fmt: skip
    return rows


def _remembered(rows: Any, answers: Any) -> Any:
    """f as a classifier of ART's: what it said of these rows was written down."""
    from art.estimators.classification import BlackBoxClassifier

    known = {row.tobytes(): answer for row, answer in
             zip(rows.astype(np.float32), answers, strict=True)}  # fmt: skip

    def predict(asked: Any) -> Any:
        return np.stack([known[row.tobytes()] for row in asked.astype(np.float32)])

    return BlackBoxClassifier(predict, rows.shape[1:], answers.shape[1])


def _classifier() -> Any:
    """ART wants a classifier even where predictions are given; this one is never asked."""
    from art.estimators.classification import SklearnClassifier
    from sklearn.linear_model import LogisticRegression

    points = np.random.default_rng(0).normal(size=(20, 3))
    return SklearnClassifier(LogisticRegression().fit(points, np.arange(20) % 2))


if __name__ == "__main__":
    if sys.argv[1] == "dump":
        dump(Path(sys.argv[2]))
    else:
        check(Path(sys.argv[2]), Path(sys.argv[3]))
