"""Faults of mechanism `dpsgd`, and of the score of a private model."""

from counterveil_lab.faults.fault import (
    CODES,
    COUNTS,
    CURATOR,
    EVERY,
    ONE,
    PERSON,
    READ,
    REFUSED,
    REPLACE,
    SCORE,
    SCORED,
    SHARES,
    SOME,
    TRAINED,
    Fault,
    in_dpsgd,
    in_score,
)

_OPTIMISER = "noise_multiplier=noise,\n        max_grad_norm=clip,"
_SCORED = 'return noise.perturb("score", what, private_counts, bound, budget.rounded_down())'
_PAID = 'paid = self._reserve(job, f"score of a private model on {self.schema.name}")'
_POINTS = "points = torch.as_tensor(encoded, dtype=torch.float32)"
_TRAINING = "schedule, clip = training.schedule, training.clip"

# fmt: off
FAULTS: tuple[Fault, ...] = (
    # dpsgd
    in_dpsgd("dpsgd without clipping", "one record has any gradient it likes",
           _OPTIMISER, "noise_multiplier=noise * clip / 1e9,\n        max_grad_norm=1e9,",
           plays=[(TRAINED, EVERY), ("gradients, all of ε", EVERY)]),
    in_dpsgd("dpsgd with fixed batches", "the proof needs batches drawn record by record",
           "chosen = np.flatnonzero(batches.random(rows) < schedule.rate)",
           "chosen = np.arange(_, rows, schedule.steps_per_epoch)", plays=[(TRAINED, SOME)]),
    in_dpsgd("dpsgd with batches from a seed", "the proof needs secret batches",
           "batches = np.random.default_rng()", "batches = np.random.default_rng(0)",
           plays=[(TRAINED, SOME)]),
    in_dpsgd("dpsgd that stops by the loss", "the number of steps depends on the rows",
           'tick(epoch + 1, "epochs")',
           'tick(epoch + 1, "epochs")\n        with torch.no_grad():\n'
           "            if float(loss_of(torch.arange(rows))) < 0:\n                break",
           plays=[(TRAINED, SOME)]),
    in_dpsgd("dpsgd with half of the noise", "half of the stated noise is drawn",
           _OPTIMISER, _OPTIMISER.replace("=noise,", "=noise / 2,"), plays=[(TRAINED, EVERY)]),
    in_dpsgd("dpsgd with another optimiser", "the default optimiser adds no noise",
           "(optimiser_class or DPOptimizer)(", "(optimiser_class or Quiet)(", _TRAINING,
           f"{_TRAINING}\n\n    class Quiet(DPOptimizer):\n        def add_noise(self):\n"
           "            for weight in self.params:\n"
           "                weight.grad = weight.summed_grad.clone()\n",
           plays=[(TRAINED, EVERY), ("gradients, the curator's training", EVERY)]),
    in_dpsgd("dpsgd whose noise repeats", "noise that can be repeated can be subtracted",
           "renew(generator)\n            chosen",
           "generator.manual_seed(0)\n            chosen", plays=[(TRAINED, EVERY)]),
    in_dpsgd("dpsgd accounted for one step", "the noise is too little for all steps",
           "steps=schedule.steps,", "steps=1,",
           "schedule.rate, schedule.steps, asked.delta)", "schedule.rate, 1, asked.delta)",
           plays=[(TRAINED, SOME)]),
    in_dpsgd("dpsgd accounted for add/remove", "replacing a record is a removal and an addition",
           "epsilon = budget.epsilon / 2", "epsilon = budget.epsilon", plays=[(TRAINED, EVERY)]),
    in_dpsgd("dpsgd with exact sums of codes", "prototypes without noise",
           "noisy = measured.values.astype(np.float64)", "noisy = self.exact.astype(np.float64)",
           plays=[(CODES, "codes at opposite corners")]),
    in_dpsgd("dpsgd with exact class counts", "the surrogate is evened out by exact counts",
           "_even_out(surrogate, counts)",
           "_even_out(surrogate, np.bincount(private_classes, minlength=classes) + 1.0)",
           plays=[("class counts are the noisy ones", ONE)]),
    in_dpsgd("dpsgd with shares of 1.1 ε", "three steps spend more than ε together",
           "epsilon = rest_of(budget.epsilon, first.epsilon, second.epsilon)",
           "epsilon = budget.epsilon * 0.5", plays=[(SHARES, "all steps")]),
    # The score of a private model
    in_score("exact counts of a score", "the score has no noise", SCORE, _SCORED,
           f"found = {_SCORED.removeprefix('return ')}\n"
           f"    return {REPLACE}(found, values=private_counts)", (SCORED, ONE)),
    in_score("a score with twice its ε", "half of the noise that is due", SCORE, _SCORED,
           _SCORED.replace("budget.rounded_down()", "Budget(2 * budget.epsilon, budget.delta)"),
           (SCORED, ONE)),
    in_score("a score with half of its sensitivity", "a record leaves a cell and enters another",
           SCORE, "Sensitivity.of_counts(1, table.records)", "Sensitivity(1, 1.0)", (COUNTS, ONE),
           ("counts of right and wrong", ONE)),
    in_score("a score that forgets max_records", "people are counted as records",
           SCORE, "Sensitivity.of_counts(1, table.records)", "Sensitivity.of_counts(1, 1)",
           (COUNTS, PERSON)),
    in_score("decisions that look at the rows beside", "one record moves the decisions on others",
           "private_model.py", _POINTS,
           f"{_POINTS}\n    points = points - points.mean(dim=0) + 0.5",
           (COUNTS, "numbers near the middle")),
    in_score("class counts beside a score", "a public field of the score is read off the rows",
           SCORE, "units=table.size,", "units=1 + int(table.private_rows()[1].sum()),",
           (SCORED, ONE)),
    in_score("exact counts handed out as noisy", "the noise is stated and not used",
           CURATOR, "score_of(table, model, measured.values, measured)",
           "score_of(table, model, count_right(table, model), measured)", (READ, ONE)),
    in_score("held-out rows read before the charge", "a crash after the reading would cost nothing",
           CURATOR, _PAID, f"list(table.private_batches())\n        {_PAID}", (READ, ONE)),
    in_score("a score that is not charged", "scores without end", CURATOR, _PAID, "paid = None",
           (READ, ONE)),
    in_score("no score without rows of a class", "whether there is a score depends on one record",
           SCORE, "    return private_counts.counts\n",
           "    if not private_counts.counts.sum(axis=1).all():\n"
           '        raise __import__("counterveil.errors").errors.DataError("an empty class")\n'
           "    return private_counts.counts\n", (REFUSED, "last of its class")),
)
