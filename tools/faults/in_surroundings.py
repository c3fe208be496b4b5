"""Faults around a release: what is shown and left, the account, guidance, keys, and drafts."""

from faults.fault import *  # noqa: F403 - the short names of these lists

TABLE, BOOK, EXPLAINER = "curator/table.py", "privacy/book.py", "search/explainer.py"
_PROGRESS = "unit/test_counting.py::test_progress_tells_nothing_of_the_rows"
_RELEASE = "privacy/test_release.py"
_LEDGER, _DRAFT = "privacy/test_ledger.py", "unit/test_veil.py"
_PATH = "__import__('pathlib').Path"  # where a patched module does not import it
_DONE = "        population = population_of(schema, record)\n"
_MODEL = "consulted, decided_by, named = consulted_model(self.veil, model, guidance)"
_ASKED = "before = self.model.ask(asked)\n        batch"
_ALONE = "privacy/test_noise.py::test_noise_is_drawn_behind_one_door"

# ruff: noqa: F405
# fmt: off
FAULTS: tuple[Fault, ...] = (
    # What is shown and left
    by_test("progress that shows labelled rows", "a line on the terminal counts private rows",
            TABLE, "self.tell(len(counts))", "self.tell(int(counts.sum()))", _PROGRESS),
    fault("progress in rows that count", "the page of the studio shows how many have a label",
           CURATOR, _DONE, f"{_DONE}        with progress_bar('counted', table.rows) as tick:\n"
           "            tick(len(table.private_rows()[1]))\n", (COMMAND, UNFIT)),
    by_test("progress in records of people", "how many records there are is private",
            TABLE, "        if self.unit_column is None:\n            self._rows_read",
            "        if True:\n            self._rows_read", _PROGRESS),
    fault("a warning where a class is empty", "whether a record is the last of its class",
           CURATOR, _DONE, f"{_DONE}        if len(set(table.private_rows()[1].tolist())) < 2:\n"
           "            from counterveil.terminal import warn\n            warn('one class')\n",
           (COMMAND, "last of its class")),
    fault("counts left in a file", "what was counted stays in the folder",
           CURATOR, _DONE, f"{_DONE}        {_PATH}('counts.txt').write_text(str(record.units + "
           "table.private_rows()[0].sum()))\n", (COMMAND, UNFIT)),
    fault("a file whose name counts rows", "a folder can be listed by others",
           CURATOR, _DONE,
           f"{_DONE}        {_PATH}(f'{{len(table.private_rows()[1])}}.tmp').touch()\n",
           (COMMAND, UNFIT)),
    in_score("a score that says how many rows it used", "that is how many have a label",
           CURATOR, "score = measure_score(table, model, job.budget)",
           "score = measure_score(table, model, job.budget)\n"
           "        import sys\n        print(len(table.private_rows()[1]), file=sys.stderr)",
           (COMMAND, UNFIT)),
    in_score("a score that leaves its counts", "what was counted stays in the folder",
           CURATOR, "score = measure_score(table, model, job.budget)",
           "score = measure_score(table, model, job.budget)\n"
           f"        {_PATH}('c.txt').write_text(str(table.private_rows()[0].sum()))",
           (COMMAND, UNFIT)),
    by_test("a decision that depends on the batch", "floats of a network differ among other rows",
            "private_model.py", "torch.cat([network(row.clone()) for row in points.split(1)])",
            "network(points)",
            "unit/test_private_model.py::test_a_decision_does_not_depend_on_the_rows_beside"),
    by_test("a scorecard that adds floats", "a sum differs in its last digits among other rows",
            "population/whole_scorecard.py", "((shares @ self.points + self.offsets * WHOLE)",
            "((shares.float() @ self.points.float() + self.offsets * WHOLE)",
            "unit/test_whole_scorecard.py::test_a_decision_depends_on_the_row_alone"),
    # DP-SGD
    in_dpsgd("dpsgd at the rate of labelled rows", "the statement tells how many have a label",
           "schedule = Schedule.of(architecture, table.size)",
           "schedule = Schedule.of(architecture, len(table.private_rows()[1]))",
           plays=[(PUBLIC, UNFIT)]),
    # One door
    by_test("noise beside the one door", "what is drawn elsewhere nobody checks",
            MIXED, "        private_ranges = on_ladders.counts",
            "        private_ranges = on_ladders.counts + np.random.default_rng().integers(2)",
            _ALONE),
    by_test("a second source of noise", "the audit's instrument does not hear it",
            "curator/bits.py", "return record_of(table, plan, pooled, sums)",
            "from counterveil.curator.noise import add, calibrate\n"
            "    again = calibrate(9, 9.0, Budget(1.0))\n"
            "    more = [add(each.values, again, 9, 9.0) for each in (pooled, sums)]\n"
            "    return record_of(table, plan, pooled, sums) if more else None", _ALONE),
    by_test("noise of dpsgd from another generator", "what is drawn elsewhere nobody checks",
            DPSGD, "surrogate, entropy = surrogate.to(device)",
            "torch.rand(1)\n    surrogate, entropy = surrogate.to(device)", _ALONE),
    # The account
    by_test("a ledger that forgets the unit", "privacy of records and of people is added up",
            BOOK, "        return self.protects == other.protects", "        return True",
            f"{_LEDGER}::test_people_by_another_column_are_another_unit"),
    by_test("a ledger that forgets the column", "who visits twice is protected once",
            BOOK, 'by {self.unit_column!r}" if self.unit_column', 'as told" if self.unit_column',
            f"{_LEDGER}::test_people_by_another_column_are_another_unit"),
    by_test("a ledger that forgets max_records", "people of three records pay as people of one",
            BOOK, "{person} with at most {self.max_records} {records}", "{person}",
            f"{_LEDGER}::test_people_with_more_records_are_another_unit"),
    # Guidance, keys, drafts
    Fault("guidance of the surrogate that asks f", "f is asked where no target is named",
          ((EXPLAINER, _MODEL,
            f"{_MODEL}\n        from counterveil.models import adapt\n        "
            "self._f = adapt(model, self.veil.schema) if model else None"),
           (EXPLAINER, _ASKED, _ASKED.replace(
               "self.model.ask", "(self.model if target or not self._f else self._f).ask"))),
          ((TEST, f"{_RELEASE}::test_surrogate_guidance_asks_no_model"),)),
    by_test("a private model with other weights", "f in its place is said to be end-to-end",
            "search/components.py", "decides = veil.model(model.classes if own else None)",
            "decides = model if own else veil.model(None)",
            "unit/test_private_model.py::test_its_own_model_given_by_name_is_the_same"),
    by_test("weak keys are keys", "anybody can sign under them", "signature.py",
            "if _is_weak(self.raw):", "if False:", "unit/test_signature.py"),
    by_test("a draft that promises", "bounds that were read off the rows are said to cost nothing",
            JOB, "level=Level.NONE if schema.drafted else Level.EXPLAINER",
            "level=Level.EXPLAINER", f"{_DRAFT}::test_drafted_and_dpsgd_veils_can_be_opened"),
    by_test("a draft confirmed by itself", "it loses its mark though nobody looked at it",
            "studio/steps.py", '{"drafted": left or False, ', '{"drafted": False, ',
            "system/test_studio.py::test_a_schema_stays_a_draft_until_a_person_has_typed_every_column"),
)
