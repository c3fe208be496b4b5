"""Every error that counterveil raises on purpose: an InputError or an InternalError.

A message says what was expected, what came, and the remedy. It never holds a value of a private
row: errors end up in logs, and logs travel.
"""

import traceback
from pathlib import Path

MOST_LETTERS = 500  # of a message


class CounterveilError(Exception):
    """Base of every error raised on purpose. Its message is never long, whatever it quotes."""

    def __str__(self) -> str:
        return shortened(super().__str__())


class CounterveilWarning(UserWarning):
    """Something that may well be wrong, and that only the caller can tell."""


def shortened(words: str) -> str:
    """`words` with the middle left out where they are long: what to do often comes last."""
    if len(words) <= MOST_LETTERS:
        return words
    end = MOST_LETTERS // 3
    return f"{words[: MOST_LETTERS - end - 3]} … {words[-end:]}"


def fault_of(error: BaseException) -> str:
    """What an error is and where it was raised; not its text, which may hold values of rows."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}"


class InputError(CounterveilError):
    """Yours to mend, the message says how; the command line exits with 2."""


class SchemaError(InputError):
    """The schema contradicts itself or cannot be read."""


class DataError(InputError):
    """A table does not fit its schema. Names row and column, never the value."""


class BudgetError(InputError):
    """An epsilon or delta that means nothing."""


class VeilError(InputError):
    """A veil file that is damaged, foreign, hostile or of another version."""


class ModelError(InputError):
    """The target model cannot be loaded, or answers in the wrong shape."""


class CallLimitError(ModelError):
    """The target model would have to be called more often than `max_calls` allows."""


class RequestError(InputError):
    """An argument that asks for something impossible."""


class InternalError(CounterveilError):
    """A promise of counterveil did not hold: ours to mend; please report it."""
