"""The few actions that would help most of the people to whom a model does not give a class.

An action is a set of changes that many can make: a number of at least, or at most, so much, or a
category. Candidates are what answers to some of the people, and the nearest values that would also
do (their regions), have in common. Each is tried on every person: who has more already keeps it,
the rules must allow it, and the model is asked about the row as it then is. Few are chosen, one
after the other: each time the one that adds most people for what it asks (greedy set cover). An
action asks more the more effort it takes, and the fewer people have it already: hardly anybody
becomes a doctor. So every figure is counted, none is estimated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from counterveil.encoding import Array
from counterveil.errors import RequestError
from counterveil.hints import either
from counterveil.models import Rows
from counterveil.pages import TEMPLATES
from counterveil.schema import Feature, Schema
from counterveil.search.constraints.bounds import box_around
from counterveil.search.constraints.rules import Rules
from counterveil.search.paper.algorithm2 import select_targets
from counterveil.search.results.explanations import Explanations
from counterveil.search.results.wording import show
from counterveil.search.verification import with_value
from counterveil.tables import plain_rows
from counterveil.terminal import progress_bar

ANSWERED = 200  # people whose answers candidates are made of
MOST_PEOPLE = 2000  # that actions are tried on
CANDIDATES = (40, 40, 20)  # actions of one, two and three changes that most answers share
PAIRED = 8  # of the best single changes: they are tried in pairs as well
LEAST = 0.02  # of the people: an action that adds fewer is left out
FEW = 20  # people: of fewer nothing is told
PRICE = 0.25  # of any action, besides its effort
RARITY = 0.5  # effort that an action asks besides, for each factor e by which it is rarer
RAREST = 0.02  # share of people: what fewer have already is advised to nobody
MEANINGS = (
    "Helps, so far: shares of those who do not get it. Effort: how far numbers move among all "
    "people, in shares of them; any other change counts 1. Have it: the share of everybody who is "
    "so already."
)


class Change(NamedTuple):
    """A column gets at least (>=) or at most (<=) a value, or (=) this one."""

    column: str
    sign: str
    value: Any

    def is_met_by(self, own: Any) -> bool:
        """Whether a value needs no change."""
        if own is None or self.sign == "=":
            return bool(own == self.value)
        return bool(own >= self.value if self.sign == ">=" else own <= self.value)

    def applied(self, schema: Schema, row: dict[str, Any]) -> dict[str, Any]:
        """The row with this change, if it needs any."""
        needed = not self.is_met_by(row[self.column])
        return with_value(schema, row, self.column, self.value) if needed else row

    def in_words(self, feature: Feature) -> str:
        """As people read it; where all numbers that are as good have names, by these."""
        bound, names = {">=": "at least ", "<=": "at most "}.get(self.sign, ""), []
        if bound and feature.number_range and feature.is_whole:
            end = feature.number_range[self.sign == ">="]
            names = [str(name) for own, name in feature.value_names if self.is_met_by(own)]
            names = names if len(names) == abs(end - self.value) + 1 else []
        shown = bound + show(feature.shown_value(self.value))
        return f"{feature.shown_name}: {either(names or [shown])}"


Action = tuple[Change, ...]


@dataclass(frozen=True)
class ActionSummary:
    """The few actions that help most.

    `goal`: what people call the class. `headline`: about whom all of it is. `table`: an action a
    row, best first, for everybody and for groups. Its columns: `group`; how many `people` it has,
    and how many are `without` the class; `action` in words; the share of these that it `helps`;
    their mean `effort`; the share that it or one before it helps, `so_far`; the share of everybody
    who `have_it` already; and its `changes`. A group without actions has one row that says why.
    """

    goal: str
    headline: str
    table: pd.DataFrame

    def groups(self) -> Iterator[tuple[str, list[list[str]]]]:
        """Each group and its actions as texts: action, helps, effort, so far, have it."""
        for name, part in self.table.groupby("group", sort=False):
            told: list[list[str]] = []
            for each in part.itertuples():
                shares = [f"{each.helps:.0%}", f"{each.effort:.2f}"]
                shares += [f"{each.so_far:.0%}", f"{each.have_it:.1%}"]
                told.append([str(each.action), *(shares if each.changes else [""] * 4)])
            counts = f"{part.without.iloc[0]:,} of {part.people.iloc[0]:,}"
            yield f"{name}: {counts} do not get {self.goal}", told

    @property
    def text(self) -> str:
        """All of it as lines."""
        lines = [self.headline]
        for title, actions in self.groups():
            lines += ["", title]
            for action, helps, effort, so_far, have_it in actions:
                told = f": helps {helps}, effort {effort}; {so_far} so far; {have_it} have it"
                lines.append(f"  {action}{told if helps else ''}")
        return "\n".join([*lines, "", MEANINGS])

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values for JSON."""
        rows = plain_rows(self.table)
        return {"goal": self.goal, "headline": self.headline, "actions": rows}

    def to_html(self) -> str:
        """A page of one file."""
        return TEMPLATES.get_template("actions.html").render(
            title=f"What would help most: {self.goal}", summary=self, meanings=MEANINGS
        )


def summary_of_actions(
    explainer: Any,
    people: Any,
    target: Any,
    most: int,
    groups: Collection[str],
    rules: Rules | None,
    draw: int,
) -> ActionSummary:
    """The few actions that help most; this is `Explainer.summary_of_actions`."""
    schema, encoding, label = explainer.veil.schema, explainer.encoding, explainer.veil.schema.label
    if explainer._components.population is None or schema.images:
        raise RequestError("a summary of actions needs a veil of mechanism functional of a table")
    for name in groups:
        if not schema.feature(name).listed_values:
            raise RequestError(f"groups: {name!r} is a number; name a feature with listed values")
    rng, whose = np.random.default_rng(0), "people of the table, told exactly"
    if people is None:
        people = encoding.decode(explainer.veil.population().sample(draw, rng)[0])
        whose = "people drawn from the veil, at no further ε"
    every = Rows.of_frame(people, encoding)
    said = explainer.model.ask(every)
    wanted = label.classes[-1] if target is None else target
    goal = int(select_targets(said, wanted, label)[0])
    without = said.argmax(dim=1).numpy() != goal
    some = np.sort(rng.permutation(np.flatnonzero(without))[:MOST_PEOPLE])
    shown = str(label.shown_value(label.classes[goal]))
    headline = f"{len(every):,} {whose}: {without.sum():,} of them do not get {shown}"
    if len(some) < without.sum():
        headline += f"; actions were tried on {len(some):,} of these"
    trial = Trial(explainer, every.frame, some, goal, (rules or Rules()).of_table(schema))
    parts = {"everybody": np.ones(len(every), dtype=bool)}
    for feature in map(schema.feature, groups):
        for value in feature.listed_values:
            own = np.asarray(every.frame[feature.name] == value)
            parts[f"{feature.shown_name}: {feature.shown_value(value)}"] = own
    told = []
    for name, members in parts.items():
        counts = {"people": int(members.sum()), "without": int((members & without).sum())}
        told += [{"group": name, **counts, **each} for each in trial.cover(members[some], most)]
    return ActionSummary(shown, headline, pd.DataFrame(told))


class Trial:
    """Actions that were tried on people without the class: `some` of a frame of everybody.

    `actions`; and for each and every person whether it `helps`, and the `effort`, both (actions,
    people); `have_it`: the share of everybody who is so already, (actions,).
    """

    def __init__(
        self, explainer: Any, every: pd.DataFrame, some: Array, goal: int, rules: Rules
    ) -> None:
        frame = every.iloc[some].reset_index(drop=True)
        self.explainer, self.frame, self.goal, self.rules = explainer, frame, goal, rules
        self._every, self.have_it = plain_rows(every), np.zeros(0)
        self.schema = explainer.veil.schema
        self.actions: list[Action] = []
        self.helps, self.effort = np.zeros((0, len(frame)), dtype=bool), np.zeros((0, len(frame)))
        if len(frame):
            target = self.schema.label.classes[goal]
            self._try(candidates(explainer.explain(frame.head(ANSWERED), target, rules=rules)))
            order = np.argsort(-self.helps.sum(axis=1), kind="stable").tolist()
            alone = [self.actions[place] for place in order if len(self.actions[place]) == 1]
            pairs = (sorted(one + two) for one, two in combinations(alone[:PAIRED], 2))
            known = {*self.actions}
            self._try([(a, b) for a, b in pairs if a.column != b.column and (a, b) not in known])

    def _try(self, actions: Sequence[Action]) -> None:
        """Ask the model what each action does for everybody."""
        encoding, rows = self.explainer.encoding, plain_rows(self.frame)
        before = Rows.of_frame(self.frame, encoding)
        box = box_around(encoding, before.encoded, self.rules)
        with progress_bar("trying actions", len(actions)) as tick:
            for number, action in enumerate(actions, 1):
                changed = rows
                for each in action:
                    changed = [each.applied(self.schema, row) for row in changed]
                after = Rows.of_frame(changed, encoding)
                helps = (self.explainer.model.ask(after).argmax(dim=1) == self.goal).numpy()
                helps &= self.explainer._builder.legal(before, after, self.rules, box)
                effort = np.zeros(len(rows))
                if helps.any():
                    pairs = before.encoded[helps], after.encoded[helps]
                    goals = np.full(len(pairs[0]), self.goal)
                    effort[helps] = self.explainer._components.quality(*pairs, goals).effort
                self.actions.append(action)
                self.helps = np.vstack([self.helps, helps])
                self.effort = np.vstack([self.effort, effort])
                met = [all(e.is_met_by(row[e.column]) for e in action) for row in self._every]
                self.have_it = np.append(self.have_it, np.mean(met))
                tick(number)

    def cover(self, members: Array, most: int) -> list[dict[str, Any]]:
        """The actions for those who are `members`, (people,), best first, as rows of the table."""
        told: list[dict[str, Any]] = []
        left, count = members.copy(), int(members.sum())
        rarity = -RARITY * np.log(np.maximum(self.have_it, RAREST))[:, None]
        while count >= FEW and len(told) < most:
            new = self.helps & left
            worth = np.where(new, 1 / (PRICE + self.effort + rarity), 0.0).sum(axis=1)
            worth[new.sum(axis=1) < LEAST * count] = 0.0
            worth[self.have_it < RAREST] = 0.0
            if not worth.any():
                break
            best = int(worth.argmax())
            mine, left = self.helps[best] & members, left & ~new[best]
            changes = self.actions[best]
            words = [each.in_words(self.schema.feature(each.column)) for each in changes]
            shares = {"helps": mine.sum() / count, "effort": self.effort[best, mine].mean()}
            shares |= {"so_far": 1 - left.sum() / count, "have_it": self.have_it[best]}
            changed = [each._asdict() for each in changes]
            told.append({"action": "; ".join(words), **shares, "changes": changed})
        few = "too few to tell" if count else "all of them get it already"
        none = f"no usual action helps {LEAST:.0%} of them" if count >= FEW else few
        empty = dict.fromkeys(("helps", "effort", "so_far", "have_it"), math.nan)
        return told or [{"action": none, **empty, "changes": []}]


def candidates(found: Explanations) -> list[Action]:
    """What answers, and the nearest values that also do, have in common, most frequent first."""
    schema, counts = found.schema, [Counter[Action]() for _ in CANDIDATES]
    derived = {link.derived for link in schema.links}
    for query in found.found.tolist():
        changes = [change for change in found.changes_of(query) if change[0] not in derived]
        ends = {each["column"]: each for each in found.region_of(query) if "low" in each}
        for nearest in (False, True):
            made = []
            for column, was, to in changes:
                end = ends.get(column) if nearest and was is not None else None
                value = to if end is None else end["low"] if to > was else end["high"]
                made.append(_shared(schema.feature(column), was, value))
            for size, counter in enumerate(counts, 1):
                counter.update(combinations(sorted(made), size))
    ranked = zip(counts, CANDIDATES, strict=True)
    return [action for counter, most in ranked for action, _ in counter.most_common(most)]


def _shared(feature: Feature, was: Any, to: Any) -> Change:
    """A change of an answer as many can make it: a number without names is rounded outwards."""
    allowed = feature.allowed_range()
    if allowed is None:
        return Change(feature.name, "=", to)
    rises = was is None or to > was
    if to and feature.step is None and not feature.value_names:
        tens = 10.0 ** (math.floor(math.log10(abs(to))) - 1)
        unit = tens if abs(to) < 20 * tens else 5 * tens
        times = math.ceil(to / unit - 1e-9) if rises else math.floor(to / unit + 1e-9)
        to = min(max(float(f"{times * unit:.12g}"), allowed[0]), allowed[1])
    return Change(feature.name, ">=" if rises else "<=", int(to) if feature.is_whole else to)
