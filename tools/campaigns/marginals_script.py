"""AIM and MST of OpenDP, for a Python of its own that has `opendp[mbi]` and pandas.

`python marginals_script.py given.npz made.npy`. It imports nothing of counterveil: mbi needs jax
and polars, which nothing else here does.
"""

import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

TRIES = 100


def rho_of(dp: Any, epsilon: float, delta: float) -> float:
    """The largest ρ of zero-concentrated privacy that is (ε, δ)-private."""
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)

    def is_enough(scale: float) -> bool:
        private = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=scale))
        return bool(private.map(1.0).epsilon(delta) <= epsilon)

    return 0.5 / float(dp.binary_search(is_enough, bounds=(1e-2, 1e5))) ** 2


def that_adds_up(rho: float, columns: int) -> float:
    """At most ρ, by a hair less, so that the parts into which MST splits it are no more than ρ.

    MST halves ρ, takes a tenth of that for its choices, and splits it among them. OpenDP adds the
    parts up again, rounding up, and refuses the last choice where that is more by the last digit.
    """
    for less in range(TRIES):
        given = rho * (1 - less * 1e-9)
        rest = _before(given - given * 0.5)
        choices, total = _before(rest - rest * 0.9), 0.0
        part = math.nextafter(choices / (columns - 1), 0)
        for _ in range(columns - 1):
            exact, total = Fraction(total) + Fraction(part), total + part
            total = total if total >= exact else math.nextafter(total, 1)
        if total <= choices:
            return given
    raise ValueError(f"no ρ near {rho} adds up")


def _before(number: float) -> float:
    return math.nextafter(math.nextafter(number, 0), 0)


def project(model: Any, attrs: str | Sequence[str]) -> Any:
    """What `project` of a model of mbi gives; that one compiles itself anew for every shape."""
    from mbi import Factor
    from opt_einsum import contract

    names = (attrs,) if isinstance(attrs, str) else tuple(attrs)
    place, given = {name: number for number, name in enumerate(model.domain.attrs)}, []
    for clique in model.potentials.cliques:
        factor = model.potentials[clique]
        logs = np.asarray(factor.values, dtype=float)
        given += [np.exp(logs - logs.max()), [place[name] for name in factor.domain.attrs]]
    found = contract(*given, [place[name] for name in names])
    return Factor(model.domain.project(names), found * (float(model.total) / found.sum()))


def main(given: str, made: str) -> None:
    """Read codes and settings, and write the codes of sampled rows.

    `codes` (rows, columns) with `sizes` values a column, `method` "mst" or "aim", `epsilon`,
    `delta`, how many `samples`, and for AIM most `rounds` and the `size` of its model in megabytes.
    """
    import mbi
    import opendp.prelude as dp
    import polars as pl
    from opendp.extras.mbi import AIM, MST

    mbi.MarkovRandomField.project = project
    dp.enable_features("contrib")
    asked = np.load(given)
    codes, sizes = asked["codes"], asked["sizes"].tolist()
    names = [f"c{place}" for place in range(len(sizes))]
    # OpenDP adds a null to each list of keys: here the last code is that null.
    columns = {
        name: [None if code == size - 1 else code for code in column.tolist()]
        for name, size, column in zip(names, sizes, codes.T, strict=True)
    }
    frame = pl.DataFrame(columns, schema=dict.fromkeys(names, pl.Int64)).lazy()
    keys = {name: [*range(size - 1), None] for name, size in zip(names, sizes, strict=True)}
    limits: dict[str, Any] = {"rounds": int(asked["rounds"]), "max_size": float(asked["size"])}
    algorithm = MST() if str(asked["method"]) == "mst" else AIM(queries=2, **limits)
    rho = that_adds_up(rho_of(dp, float(asked["epsilon"]), float(asked["delta"])), len(sizes))
    unit, loss = dp.unit_of(contributions=1), dp.loss_of(rho=rho)
    context = dp.Context.compositor(data=frame, privacy_unit=unit, privacy_loss=loss)
    query = context.query(rho=rho).contingency_table(keys=keys, algorithm=algorithm)
    table = query.release()
    found = table.synthesize(rows=int(asked["samples"]), method="sample")
    filled = [found[name].fill_null(size - 1) for name, size in zip(names, sizes, strict=True)]
    np.save(made, np.column_stack([column.to_numpy() for column in filled]))


if __name__ == "__main__":
    main(*sys.argv[1:])
