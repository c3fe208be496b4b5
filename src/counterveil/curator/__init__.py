"""The private side: the only code that ever sees private rows. Turns them into a Veil, once."""

from counterveil.curator.curator import MECHANISMS, Curator

__all__ = ["MECHANISMS", "Curator"]
