"""Faults of mechanism `dpsgd`, and of the score of a private model."""

from faults.fault import *  # noqa: F403 - the short names of these lists

_OPTIMISER = "noise_multiplier=noise,\n        max_grad_norm=clip,"
_SCORED = 'measured = noise.perturb("score", what, private_counts.counts, bound, share)'
_PAID = 'paid = self._reserve(job, f"score of a private model on {self.schema.name}")'
_ALONE = "points = torch.as_tensor(encoded, dtype=torch.float32)"
_FILLED = "    fill(table, private_counts)\n    measured"
_ADDED = "np.add.at(self.counts, (private_classes, bins), 1)"
_EDGES = "edges = edges_of(model, bins_for(table.size, table.records, variance))"
_TRAINING = "schedule, clip = training.schedule, training.clip"

# ruff: noqa: F405
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
           f"{_SCORED}\n    measured = {REPLACE}(measured, values=private_counts.counts)",
           (SCORED, ONE)),
    in_score("a score with twice its ε", "half of the noise that is due", SCORE, _SCORED,
           _SCORED.replace("share)", "Budget(2 * budget.epsilon, budget.delta))"), (SCORED, ONE)),
    in_score("a score with half of its sensitivity", "a record leaves a cell and enters another",
           SCORE, "Sensitivity.of_counts(1, table.records)", "Sensitivity(1, 1.0)", (COUNTS, ONE),
           ("counts of the score", ONE)),
    in_score("a score that forgets max_records", "people are counted as records",
           SCORE, "Sensitivity.of_counts(1, table.records)", "Sensitivity.of_counts(1, 1)",
           (COUNTS, PERSON)),
    in_score("a record in two cells of a score", "it moves twice as many counts as is stated",
           SCORE, _ADDED, f"{_ADDED}\n        {_ADDED.replace('bins)', 'bins // 2)')}",
           (COUNTS, "numbers near the middle")),
    in_score("edges of a score from the rows", "one record moves the bins of all others",
           SCORE, _EDGES, f"{_EDGES} + float(table.private_rows()[0].mean()) - 0.5",
           (COUNTS, "numbers near the middle")),
    in_score("bins by how many rows have a label", "how many counts there are tells of one record",
           SCORE, "bins_for(table.size,", "bins_for(len(table.private_rows()[1]),",
           (SCORED, "a label that is none")),
    in_score("log-odds that look at the rows beside", "one record moves the cells of all others",
           "private_model.py", _ALONE,
           "points = torch.as_tensor(encoded - encoded.mean(axis=0) + 0.5).float()",
           (COUNTS, "numbers near the middle")),
    in_score("class counts beside a score", "a public field of the score is read off the rows",
           SCORE, "units=table.size,", "units=1 + int(table.private_rows()[1].sum()),",
           (SCORED, ONE)),
    in_score("exact counts handed out as noisy", "the noise is stated and not used",
           SCORE, "_score_of(table, model, measured.values, tops, measured)",
           "_score_of(table, model, private_counts.counts, tops, measured)", (SCORED, ONE)),
    in_score("held-out rows read before the charge", "a crash after the reading would cost nothing",
           CURATOR, _PAID, f"list(table.private_batches())\n        {_PAID}", (READ, ONE)),
    in_score("a score that is not charged", "scores without end", CURATOR, _PAID, "paid = None",
           (READ, ONE)),
    in_score("no score without rows of a class", "whether there is a score depends on one record",
           SCORE, _FILLED, "    fill(table, private_counts)\n"
           "    if not private_counts.counts.sum(axis=1).all():\n"
           '        raise __import__("counterveil.errors").errors.DataError("an empty class")\n'
           "    measured", (REFUSED, "last of its class")),
)
