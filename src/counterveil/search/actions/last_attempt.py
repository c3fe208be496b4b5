"""No is an answer, too: what is tried before it is given, and what can be said with it.

Where the beam found nothing, coordinate ascent goes from a few rows: of all actions of the whole
menu the one that brings the model furthest is taken, again and again, a fixed number of times.
Where all rows of the menu are few, the model is asked about each of them. For a model that adds up
over features the best row is known beforehand, and a no can be proved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from counterveil.search.actions.actions import Actions
from counterveil.search.actions.costs import BatchCosts
from counterveil.search.actions.seen import Seen, least_of_each

ROUNDS = 8  # actions that the ascent takes from each start, at most
GAINS = 1e-6  # log-odds: less is no gain
MOST_ROWS = 4096  # of the whole menu that are all asked about for one query, if they are no more
AT_ONCE = 1 << 16  # rows that the model is asked about together
PROVED = 1e-3  # log-odds that the best row is short of, at least: more than floats are off by
SATURATED = 12.0  # log-odds beyond which probabilities are cut, and no longer add up


class LastAttempt:
    """Coordinate ascent of the model's margin for queries without an answer.

    `actions`: all of the menu. `seen`: what is known of each query, and is found out here.
    """

    def __init__(self, costs: BatchCosts, actions: Actions, seen: Seen) -> None:
        self.costs, self.actions, self.seen = costs, actions, seen

    def __call__(self, left: Tensor) -> Tensor:
        """Try the queries `left`; which of them are proved to have no answer, (left,)."""
        ahead, own = self._single_actions(left)
        best_rows = self._best_of_each(ahead.amin(dim=2), own.amin(dim=1), left)
        proved = torch.zeros(len(left), dtype=torch.bool, device=left.device)
        if self.costs.question.model.additive is not None:
            proved = self._are_proved(ahead, own, left)
        self._look(best_rows[proved], left[proved])
        if self.actions.is_coupled:  # the best value of each feature may not go together
            self._climb(self.costs.queries[left[proved]], left[proved])
        self._climb(best_rows[~proved], left[~proved])
        surest, margin = self.seen.surest[left[~proved]], self.seen.margin[left[~proved]]
        self._climb(surest, left[~proved], margin)
        for query in left[~proved][~self.seen.answered[left[~proved]]].tolist():
            self._whole_menu(query)
        return proved & ~self.seen.answered[left]

    # --- Every action by itself ---

    def _single_actions(self, left: Tensor) -> tuple[Tensor, Tensor]:
        """How far the target class leads each other one after each action, and now.

        In log-odds: (left, entries, other classes), -∞ where an action is closed, and (left, other
        classes). Coupled rules aside: what they forbid can only be less.
        """
        queries, classes = self.costs.queries[left], self.costs.question.model.classes
        own = self._lead(self.costs.own_log_proba[left], left)
        ahead = own.new_full((len(left), len(self.actions.menu), classes - 1), -torch.inf)
        for rows, at, entry in self._each_action(queries, left, lawful=False):
            self.seen.count(left[at])
            ahead[at, entry] = self._lead(self.costs.question.log_proba(rows), left[at])
        return ahead, own

    def _lead(self, log_proba: Tensor, query: Tensor) -> Tensor:
        """By how much the target class leads each other one, (rows, other classes)."""
        goals = self.costs.targets[query]
        others = torch.ones_like(log_proba, dtype=torch.bool).scatter_(1, goals[:, None], False)
        rivals = log_proba[others].view(len(query), -1)
        return log_proba.gather(1, goals[:, None]) - rivals

    def _are_proved(self, ahead: Tensor, own: Tensor, left: Tensor) -> Tensor:
        """For which queries even the best value of every feature convinces a model that adds up.

        The lead over another class is at most its own, with the gain of the best value of each
        feature, of as many features as may change.
        """
        gain = (ahead - own[:, None]).clamp(min=0)
        features = self.actions.features
        feature = self.actions.menu.feature[None, :, None].expand_as(gain)
        best = gain.new_zeros(len(left), features, gain.shape[2])
        best = best.scatter_reduce_(1, feature, gain, "amax").sort(dim=1, descending=True).values
        if self.costs.batch.max_changes is not None:
            most = self.costs.batch.max_changes[left].clamp(max=features)
            place = torch.arange(features, device=left.device)
            best = best * (place < most[:, None])[:, :, None]
        reached = own + best.sum(dim=1)
        cut = (ahead.isfinite() & (ahead.abs() > SATURATED)).flatten(1).any(dim=1)
        cut |= (own.abs() > SATURATED).any(dim=1)
        return (reached < -PROVED).any(dim=1) & ~cut

    def _best_of_each(self, margin: Tensor, own: Tensor, left: Tensor) -> Tensor:
        """Rows with every feature at the value that the model likes best by itself, (left, width).

        `margin`: after each action, (left, entries). As many features as may change.
        """
        menu, features = self.actions.menu, self.actions.features
        gain, most = margin - own[:, None], self.costs.batch.max_changes
        feature = menu.feature.expand_as(gain)
        best = gain.new_full((len(left), features), GAINS)
        best = best.scatter_reduce_(1, feature, gain, "amax")
        worth, order = best.sort(dim=1, descending=True)
        rows = self.costs.queries[left]
        moved = torch.zeros_like(best, dtype=torch.bool)
        for turn in range(features):
            takes = worth[:, turn] > GAINS
            if most is not None:
                takes &= most[left] > turn
            who = takes.nonzero()[:, 0]
            if not len(who):
                break
            mine = order[who, turn]
            is_mine = menu.feature == mine[:, None]
            entry = gain[who].masked_fill(~is_mine, -torch.inf).argmax(dim=1)
            rows = rows.index_copy(0, who, self.actions.take(rows[who], left[who], entry))
            moved[who, mine] = True
        rows, fine = self.actions.lawful(rows, left, moved)
        return torch.where(fine[:, None], rows, self.costs.queries[left])

    # --- From a row one action after the other ---

    def _climb(self, rows: Tensor, query: Tensor, reached: Tensor | None = None) -> None:
        """From `rows` one action after the other, until the model accepts or nothing helps.

        `reached`: the margins of `rows`, where they are known.
        """
        for turn in range(ROUNDS):
            going = ~self.seen.answered[query]
            rows, query = rows[going], query[going]
            if not len(query):
                return
            reached = self._look(rows, query) if reached is None else reached[going]
            best, after = self._best_action(rows, query)
            # The first action need not help: two may do so that neither does alone.
            better = best > (reached + GAINS if turn else -torch.inf)
            rows, query, reached = after[better], query[better], best[better]

    def _whole_menu(self, query: int) -> None:
        """Ask about all rows of the menu for one query, if they are few."""
        actions, is_open = self.actions, self.actions.is_open[query]
        stays = torch.full((1,), -1, device=is_open.device)
        choices = []
        for feature in range(actions.features):
            mine = (is_open & (actions.menu.feature == feature)).nonzero()[:, 0]
            choices += [torch.cat([stays, mine])] if len(mine) else []
        if len(choices) < 2 or math.prod(map(len, choices)) > MOST_ROWS:
            return
        sets = torch.cartesian_prod(*choices)[1:]  # in the first one everything stays
        whose = torch.full((len(sets),), query, device=is_open.device)
        rows = self.costs.queries[whose]
        moved = torch.zeros(len(sets), actions.features, dtype=torch.bool, device=rows.device)
        for entry in sets.T:
            taken = actions.take(rows, whose, entry.clamp(min=0))
            rows = torch.where((entry >= 0)[:, None], taken, rows)
            moved |= actions.moved(entry.clamp(min=0)) & (entry >= 0)[:, None]
        rows, fine = actions.lawful(rows, whose, moved)
        self._look(rows[fine], whose[fine])

    def _best_action(self, rows: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        """The largest margin that one action leads to, (rows,), and the row there."""
        least, after = torch.full((len(rows),), torch.inf, device=rows.device), rows.clone()
        for tried, at, _ in self._each_action(rows, query):
            least, wins = least_of_each(least, at, -self._look(tried, query[at]))
            after[at[wins]] = tried[wins]
        return -least, after

    def _each_action(
        self, rows: Tensor, query: Tensor, *, lawful: bool = True
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows after every open action from each of `rows`, from which one, and by which entry."""
        actions = self.actions
        size = max(1, AT_ONCE // max(1, len(actions.menu)))
        for part in torch.arange(len(rows), device=rows.device).split(size):
            at, entry = actions.is_open[query[part]].nonzero(as_tuple=True)
            at = part[at]
            tried = actions.take(rows[at], query[at], entry)
            if lawful:
                tried, fine = actions.lawful(tried, query[at], actions.moved(entry))
                tried, at, entry = tried[fine], at[fine], entry[fine]
            if len(at):
                yield tried, at, entry

    def _look(self, rows: Tensor, query: Tensor) -> Tensor:
        """Ask the model about rows and take note of them; their margins, (rows,)."""
        if not len(rows):
            return rows.new_zeros(0)
        margin = self.costs.margin(rows, query)
        self.seen.count(query)
        self.seen.look(rows, query, margin)
        at = (margin >= 0).nonzero()[:, 0]
        if len(at):
            least = self.costs.least(rows[at], query[at])
            cost = self.costs.of_accepted(rows[at], query[at], least, margin[at])
            self.seen.accept(rows[at], query[at], cost)
        return margin

    # --- What would have to be lifted ---

    def closed_ways(self, left: Tensor) -> tuple[Tensor, Tensor]:
        """Rows beyond one closed action that the model accepts.

        From the surest row of each query, and from the query itself where changes are limited.
        `left`: queries without an answer. Returns the rows, (left, width), and the entry that leads
        there, (left,); -1 where there is none.
        """
        actions = self.actions.closed(self.costs.context.encoding)
        closed = LastAttempt(self.costs, actions, self.seen)
        found, entry = self.seen.surest[left].clone(), torch.full_like(left, -1)
        least = torch.zeros(len(left), device=left.device)  # of the negative margin
        most, starts = self.costs.batch.max_changes, [found.clone()]
        if most is not None:  # the surest row may have used up all changes
            starts.append(self.costs.queries[left])
        for start in starts:
            for rows, at, by in closed._each_action(start, left, lawful=False):
                kept = self.actions.batch.box.select(left[at]).ties_held(rows)
                if most is not None:
                    kept &= self.actions.changed(rows, left[at]).sum(dim=1) <= most[left[at]]
                margin = self.costs.margin(rows, left[at]).masked_fill(~kept, -torch.inf)
                self.seen.count(left[at])
                least, wins = least_of_each(least, at, -margin)
                found[at[wins]], entry[at[wins]] = rows[wins], by[wins]
        return found, entry

    def with_more_changes(self, left: Tensor) -> tuple[Tensor, Tensor]:
        """Accepted rows that change more features than may, (left, width), and where there are."""
        batch = replace(self.costs.batch, max_changes=None)
        costs = BatchCosts(self.costs.context, self.costs.question, batch)
        seen = Seen.nothing(costs.queries, self.seen.margin, several=False)
        seen.surest = self.seen.surest.clone()
        LastAttempt(costs, replace(self.actions, batch=batch), seen)(left)
        self.seen.asked += seen.asked - 1
        return seen.rows[left], seen.answered[left]
