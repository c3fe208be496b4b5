"""Faults around the measurement: readings, charges, refusals, and what a veil holds."""

from faults.fault import *  # noqa: F403 - the short names of these lists

_VEIL = """return Veil(
            schema,
            made.autoencoder,
            made.prototypes,
            statement,
            made.surrogate,
            record,
            generator=made.generator,
        )"""
_GRID = "grid = chosen_grid(schema, record_of(table, plan, *measured))"
_RESERVE = 'reserved = self._reserve(job, f"release by {mechanism} of {self.schema.name}")'
_COUNTED = 'what = f"counts of (class, feature) for {features} features"'
_IMPORT = "from counterveil.schema import Schema\n"

# ruff: noqa: F405
# fmt: off
FAULTS: tuple[Fault, ...] = (
    # Readings, charges, refusals
    fault("a second pass", "the rows are read twice",
           MIXED, _GRID,
           f"list(table.private_batches())\n    {_GRID}", (READ, PAIRS)),
    fault("rows read before the charge", "a crash after the reading would cost nothing",
           CURATOR, _RESERVE, f"list(job.table.private_batches())\n            {_RESERVE}",
           (READ, PAIRS)),
    Fault("charged after reading", "a crash after the reading costs nothing",
          ((CURATOR, _RESERVE, "reserved = None"),
           (CURATOR, "if self.ledger and reserved:",
            'reserved = self._reserve(job, "late")\n        if self.ledger and reserved:')),
          ((READ, BITS),)),
    fault("not charged", "releases without end", CURATOR, _RESERVE, "reserved = None",
           (READ, IMAGES)),
    fault("half charged", "the ledger pays for half of ε",
           CURATOR, "budget, other = job.budget, job.how.other_rows",
           "budget, other = Budget(job.budget.epsilon / 2, job.budget.delta), job.how.other_rows",
           (READ, PAIRS)),
    fault("half stated", "the statement tells half of ε",
           JOB, "else budget.epsilon,\n            delta",
           "else budget.epsilon / 2,\n            delta", (READ, PAIRS)),
    Fault("refusal of a table with one class", "whether there is a veil depends on one record",
          ((MIXED, _COUNTED,
            "if not private_counts.singles.sum(axis=1).all():\n"
            f'        raise VeilError("a class has no rows")\n    {_COUNTED}'),
           (MIXED, _IMPORT, f"{_IMPORT}from counterveil.errors import VeilError\n")),
          ((REFUSED, "last of its class"),)),
    Fault("refusal of a constant column", "whether there is a veil depends on one record",
          ((MIXED, _COUNTED,
            "tables = np.split(private_counts.singles.sum(axis=0), grid.starts[1:])\n"
            "    if min(np.count_nonzero(counts) for counts in tables) < 2:\n"
            f'        raise VeilError("a column is constant")\n    {_COUNTED}'),
           (MIXED, _IMPORT, f"{_IMPORT}from counterveil.errors import VeilError\n")),
          ((REFUSED, "last of its kind"),)),
    fault("an error that holds a value", "logs travel",
           "encoding.py", "columns.refuse_cells(codes < 0, label.name, unknown)",
           'columns.refuse_cells(codes < 0, label.name, f"{list(column)}: {unknown}")',
           (ERRORS, "a cell that does not fit")),
    fault("a value on the terminal", "the command prints the label of the last row",
           "cli/private.py", "say(veil.statement.headline)",
           'say(__import__("pandas").read_csv(data)[public.label.name].iloc[-1])',
           (COMMAND, ONE), mechanism="dpsgd", delta=SHARP),
    # Fields of the veil
    fault("class counts in the statement", "a text of the veil is read off the rows",
           JOB, "reasons=draft_note(schema),",
           "reasons=(str(int(table.private_rows()[1].sum())),),", (FOLLOWS, PERSON)),
    fault("a mean among the versions", "a text of the veil is read off the rows",
           JOB, "versions=versions(),",
           'versions=versions() | {"rows": str(table.private_rows()[0].mean(axis=0).tolist())},',
           (FOLLOWS, BITS)),
    fault("an exact mean in the prototypes", "the prototypes do not follow from the record",
           CURATOR, _VEIL,
           _VEIL.replace("made.prototypes",
                         "made.prototypes + float(table.private_rows()[0].mean())"),
           (FOLLOWS, PERSON)),
    Fault("surrogate trained on the rows", "the surrogate does not follow from the record",
          ((CURATOR, _VEIL,
            "rows, labels = (torch.as_tensor(found) for found in table.private_rows())\n"
            "        learnt = train_surrogate(rows.float(), labels.long(), 2, hidden=(8,),"
            " epochs=2, seed=0)\n        " + _VEIL.replace("made.surrogate", "learnt")),
           (CURATOR, "from counterveil.networks import ",
            "import torch\nfrom counterveil.networks import train_surrogate\n"
            "from counterveil.networks import ")),
          ((FOLLOWS, PERSON),)),
    fault("population from nearly exact counts", "the networks do not follow from the record",
           CURATOR, "population = population_of(schema, record)",
           "clear = make_plan(schema, table.size, Budget(1e5), records=table.records, order=1)\n"
           "        population = population_of(schema, measure(table, clear))", (FOLLOWS, PERSON)),
    gaussian("generator of clearer features", "the generator does not follow from the record",
              CURATOR, "population = population_of(schema, record)",
              "clear = make_plan(schema, table.size, Budget(30.0, 0.01), order=2)\n"
              "        population = population_of(schema, measure(table, clear))",
              (FOLLOWS, FEATURES)),
)
