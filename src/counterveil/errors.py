"""Every error that counterveil raises on purpose.

    CounterveilError
    ├── InputError          yours to mend; the command line exits with 2
    │   ├── SchemaError     the schema contradicts itself or cannot be read
    │   ├── DataError       a table does not fit the schema (row and column, never the value)
    │   ├── BudgetError     an epsilon or delta that means nothing
    │   ├── VeilError       a damaged, foreign, hostile or too new veil file
    │   ├── ModelError      the target model cannot be loaded or answers in the wrong shape
    │   │   └── CallLimitError  it would have to be called more often than you allow
    │   └── RequestError    an argument that asks for the impossible
    └── InternalError       ours to mend; please report it

A message says what was expected, what came, and the remedy. It never holds a value of a private
row: errors end up in logs, and logs travel.
"""

from __future__ import annotations


class CounterveilError(Exception):
    """Base of every error raised on purpose."""


class InputError(CounterveilError):
    """Something given to counterveil is wrong; the message says how to mend it."""


class SchemaError(InputError):
    """The schema contradicts itself or cannot be read."""


class DataError(InputError):
    """A table does not fit its schema. Names row and column, never the value."""


class BudgetError(InputError):
    """A privacy parameter that means nothing."""


class VeilError(InputError):
    """A veil file that is damaged, foreign, hostile or of another version."""


class ModelError(InputError):
    """The target model cannot be loaded, or answers in the wrong shape."""


class CallLimitError(ModelError):
    """The target model would have to be called more often than `max_calls` allows."""


class RequestError(InputError):
    """An argument that asks for something impossible."""


class InternalError(CounterveilError):
    """A promise of counterveil did not hold: a bug of ours, not of the input."""
