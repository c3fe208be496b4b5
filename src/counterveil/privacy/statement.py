"""The Statement: what exactly is promised, inside every Veil and on every surface.

A statement is data, not prose: who is protected, against which change, by how much, and every time
the private rows were read. `text()` puts it into words for a person.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict


class Level(StrEnum):
    """How much of an answer the ε of a Veil covers."""

    NONE = "none"

    @property
    def meaning(self) -> str:
        return {Level.NONE: "no guarantee: the ε is nominal"}[self]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Access(_Frozen):
    """One reading of the private rows."""

    what: str
    mechanism: str
    sensitivity: str
    scale: float | None = None


class Statement(_Frozen):
    """What is guaranteed about the rows behind a Veil, and what is not."""

    level: Level
    mechanism: str
    epsilon: float | None
    unit: Literal["record"] = "record"
    relation: Literal["replace-one"] = "replace-one"
    accesses: tuple[Access, ...] = ()
    reasons: tuple[str, ...] = ()
    exclusions: tuple[str, ...] = ()
    versions: dict[str, str] = {}

    @property
    def headline(self) -> str:
        """One line that can stand next to any answer."""
        if self.epsilon is None:
            return f"mechanism {self.mechanism}: no noise was added; nothing is protected"
        if self.level is Level.NONE:
            return (
                f"mechanism {self.mechanism}: guarantee none; "
                f"ε = {self.epsilon:g} is nominal, not a proved bound"
            )
        return f"mechanism {self.mechanism}: {self.level.meaning}, ε = {self.epsilon:g}"

    def text(self) -> str:
        """The statement in words."""
        lines = [self.headline, ""]
        if self.reasons:
            lines += ["Why:", *(f"  {i}. {why}" for i, why in enumerate(self.reasons, 1)), ""]
        lines.append("Readings of the private rows:")
        for access in self.accesses:
            noise = f", noise scale {access.scale:g}" if access.scale is not None else ", no noise"
            lines.append(f"  - {access.what}: {access.mechanism} ({access.sensitivity}){noise}")
        if self.exclusions:
            lines += ["", "Not covered:", *(f"  - {what}" for what in self.exclusions)]
        return "\n".join(lines)
