"""Faults that a variance does not show: tails, numbers that go together, noise that comes twice."""

from faults.fault import LARGE, NOISE, STATED, Fault, fault, gaussian

_ADD = "noisy = measurement(flat.tolist())"
_DRAWN = f"{_ADD}\n        drawn = np.array(noisy) - flat\n        "
_SEEN = (STATED, LARGE)


def _drawn(how: str, more: str = "") -> str:
    """The text that puts other noise in the place of what was drawn."""
    return f"{_DRAWN}{more}noisy = (flat + {how}).tolist()"


_TWICE = (
    'kept = globals().setdefault("_kept", [])\n'
    "        old = kept.pop() if kept else drawn / noise.scale\n"
    "        if old is not None and len(kept) == 0 and old is not drawn:\n"
    "            size = min(len(old), len(drawn))\n"
    "            drawn[:size] = np.rint(old[:size] * noise.scale)\n"
    '        globals()["_turn"] = globals().get("_turn", 0) + 1\n'
    '        if globals()["_turn"] % 2:\n'
    "            kept.append(drawn / noise.scale)\n        "
)

# fmt: off
FAULTS: tuple[Fault, ...] = (
    fault("one noise vector used twice", "the difference of two answers is exact",
           NOISE, _ADD, _drawn("drawn", _TWICE), _SEEN),
    gaussian("one Gaussian noise vector used twice", "the difference of two answers is exact",
              NOISE, _ADD, _drawn("drawn", _TWICE), _SEEN),
    fault("noise truncated at 6 b", "numbers beyond it are known to be of one of both tables",
           NOISE, _ADD, _drawn("drawn.clip(-int(6 * noise.scale), int(6 * noise.scale))"), _SEEN),
    gaussian("noise truncated at 4 σ", "numbers beyond it are known to be of one of both tables",
              NOISE, _ADD, _drawn("drawn.clip(-int(4 * noise.scale), int(4 * noise.scale))"),
              _SEEN),
    fault("noise of large vectors from a seed", "it can be subtracted",
           NOISE, _ADD,
           f"{_ADD}\n        if len(flat) > 10_000:\n"
           "            dice = np.random.default_rng(len(flat))\n"
           "            draw = dice.geometric(-math.expm1(-1 / noise.scale), (2, len(flat)))\n"
           "            noisy = (flat + draw[0] - draw[1]).tolist()", _SEEN),
    fault("noise of large vectors from numpy's state", "whoever knows the seed subtracts it",
           NOISE, _ADD,
           f"{_ADD}\n        if len(flat) > 10_000:\n"
           "            draw = np.random.geometric(-math.expm1(-1 / noise.scale), (2, len(flat)))\n"
           "            noisy = (flat + draw[0] - draw[1]).tolist()", _SEEN),
    gaussian("noise drawn in blocks that repeat", "one block in a large vector tells all others",
              NOISE, _ADD, _drawn("np.resize(drawn[:4096], len(drawn))"), _SEEN),
    fault("an exact answer far above the noise", "what is certain anyway is given as it is",
           NOISE, _ADD, _drawn("np.where(np.abs(flat) > 1e6 * noise.scale, 0, drawn)"), _SEEN),
    fault("less noise on large numbers", "the noise looks at what it is put on",
           NOISE, _ADD, _drawn("np.where(np.abs(flat) > 1 << 30, drawn // 2, drawn)"), _SEEN),
    fault("noise that only adds", "a count below another table's rules that table out",
           NOISE, _ADD, _drawn("np.abs(drawn)"), _SEEN),
    fault("noise of even numbers", "the last bit of every sum is exact",
           NOISE, _ADD, _drawn("2 * (drawn // 2)"), _SEEN),
    gaussian("noise of two widths", "half of the numbers get less; the variance is as stated",
              NOISE, _ADD,
              _drawn("np.rint(drawn * np.where(np.arange(len(drawn)) % 2, 0.5, 1.32)).astype(int)"),
              _SEEN),
    fault("neighbours in a vector share noise", "the difference of two numbers is exact",
           NOISE, _ADD, _drawn("np.repeat(drawn[::2], 2)[: len(drawn)]"), _SEEN),
)
