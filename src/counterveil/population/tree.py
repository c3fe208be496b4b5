"""The tree of a population: of every feature the one that says most about it.

Along the tree P~ holds whole tables in place of correlations, which can say more (a husband is a
man). The copula adds what the tree leaves over: R⁻¹ − R_T⁻¹, with R_T the correlations that follow
from those along the tree alone.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from counterveil.encoding import Array
from counterveil.population.copula import Copula


class Tree:
    """`parents`: (parent, child) of every feature, parents first; -1 for no parent.

    `left_over`: R⁻¹ − R_T⁻¹, (features, features). `log_scale`: ½·log |R_T| − ½·log |R|, with which
    the density adds up to 1, but for cells that stand for all numbers in them.
    """

    def __init__(self, copula: Copula, information: Array) -> None:
        self._copula, self.parents = copula, spanning_tree(information)
        links = copula.links
        inverse, log_scale = np.eye(len(links)), 0.0
        for pair in self.pairs:
            link = links[pair]
            inverse[pair, pair] += link**2 / (1 - link**2)
            inverse[pair, pair[::-1]] -= link / (1 - link**2)
            log_scale += np.log1p(-(link**2)) / 2
        self.left_over = np.linalg.inv(links) - inverse
        self.log_scale = float(log_scale - np.linalg.slogdet(links)[1] / 2)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(parent, child) of every feature that has a parent."""
        return tuple(pair for pair in self.parents if pair[0] >= 0)

    def draw(self, rows: int, rng: np.random.Generator) -> Array:
        """Even numbers from 0 to 1, (rows, features): what is new in a feature beside its parent.

        What is new in two features goes together as far as the tree does not say so.
        """
        hidden = self._copula.hidden
        normal = rng.normal(size=(rows, len(hidden))) @ np.linalg.cholesky(hidden).T
        new = normal.copy()
        for parent, child in self.pairs:
            link = hidden[parent, child]
            new[:, child] = (normal[:, child] - link * normal[:, parent]) / np.sqrt(1 - link**2)
        found: Array = ndtr(new)
        return found


def spanning_tree(strength: Array) -> tuple[tuple[int, int], ...]:
    """(parent, child) of every feature, parents first, along the strongest pairs; -1 for no parent.

    `strength`: (features, features), symmetric; pairs of strength 0 are no pairs.
    """
    alone = strength.sum(axis=1)
    reach = np.zeros(len(strength))  # how strongly each goes with a feature of the tree
    parents, found = np.full(len(strength), -1), []
    left = list(range(len(strength)))
    while left:
        child = max(left, key=lambda each: (reach[each], alone[each]))
        left.remove(child)
        found.append((int(parents[child]), child))
        nearer = [each for each in left if strength[child, each] > reach[each]]
        parents[nearer], reach[nearer] = child, strength[child, nearer]
    return tuple(found)
