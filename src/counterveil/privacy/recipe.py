"""How the networks of a veil were trained on P~: all that is needed to train them again."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from counterveil.text_rules import check_text

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
Count = Annotated[int, Field(ge=1, le=10**8)]
Layers = Annotated[tuple[Annotated[int, Field(ge=1, le=1 << 16)], ...], Field(max_length=16)]


def _line(text: str) -> str:
    check_text(text, one_line=True, longest=100)
    return text


@dataclass(frozen=True)
class Training:
    """How much to train for one family of data."""

    samples: Count  # of P~
    epochs: Count
    batch: Count
    rate: Annotated[float, Field(gt=0)]
    surrogate: Layers  # neurons of each hidden layer
    surrogate_epochs: Count
    generator_steps: Count = 70  # of an epoch, where images need a generator
    rises: bool = False  # as in `networks.TrainingSchedule`

    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class Recipe:
    """A training, and what its floats depend on besides the programs; `threads`: of torch."""

    training: Training
    seed: Annotated[int, Field(ge=0, lt=1 << 31)]
    device: Annotated[str, AfterValidator(_line)]
    threads: Annotated[int, Field(ge=1, le=1 << 16)]

    __pydantic_config__ = _STRICT

    @property
    def text(self) -> str:
        how, seed = self.training, f"seed {self.seed}, {self.threads} threads, on {self.device}"
        return (
            f"{how.samples:,} samples of P~, {how.epochs} epochs in batches of {how.batch} at rate "
            f"{how.rate:g}; private model: layers {' and '.join(map(str, how.surrogate))}, "
            f"{how.surrogate_epochs} epochs; {seed}"
        )
