"""What all sets of options have in common: how they are read, and refused in plain words.

A set of options is a frozen model. Library, command, service and studio read it with the same
types, so that the same mistake gets the same message everywhere: a RequestError of one line.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, StrictInt, ValidationError, model_validator
from pydantic_core import core_schema

from counterveil.errors import RequestError
from counterveil.hints import did_you_mean, named

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Must:
    """What a field must be: the words of the refusal, after the name of the field.

    `each`: the words for one entry of a mapping or a list; {} is its name. `read_as`: the type that
    is read, where users may give more than that. Numbers of numpy and pandas count as plain ones.
    """

    words: str
    each: str = ""
    read_as: Any = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        inner = handler(source) if self.read_as is None else handler.generate_schema(self.read_as)
        return core_schema.with_info_wrap_validator_function(self._read, inner)

    def _read(self, given: Any, read: Any, info: Any) -> Any:
        given = _in_one_order(given)
        try:
            return read(given)
        except ValidationError:
            pass
        try:
            return read(_plain(given))
        except ValidationError as error:
            place = error.errors(include_url=False, include_input=False)[0]["loc"]
        is_entry = self.each and place and "[key]" not in place
        words = self.each.format(repr(place[0])) if is_entry else self.words
        raise RequestError(f"{info.field_name}{words}")


WHOLE = Must(" must be a whole number from 0 to 2147483647")
Seed = Annotated[StrictInt, Field(ge=0, lt=1 << 31), WHOLE]


class Options(BaseModel):
    """A set of options; one that is None says nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    what: ClassVar[str] = "option"  # what messages call one of them

    @model_validator(mode="before")
    @classmethod
    def _said(cls, given: Any) -> Any:
        """What is given, without what says nothing; an unknown name is refused."""
        if isinstance(given, cls):
            return given
        known = cls.__pydantic_fields__
        if not isinstance(given, Mapping):
            first = ", ".join([*known][:3])
            raise RequestError(f"{cls.what}s must be a JSON object with {first}, …")
        for name in given:
            if name not in known:
                there = f"there are: {named(known)}{did_you_mean(name, known)}"
                raise RequestError(f"{cls.what}s: no {cls.what} {name!r}; {there}")
        return {name: each for name, each in given.items() if each is not None}


def takes(*kinds: type[Options], only: tuple[str, ...] = ()) -> Callable[[Function], Function]:
    """A function whose `**options` are the fields of these models, or `only` some of them.

    Its signature shows them, and other names are refused.
    """
    fields = {name: each for kind in kinds for name, each in kind.model_fields.items()}

    def taking(function: Function) -> Function:
        own = inspect.signature(function)
        *mine, _ = own.parameters.values()
        names = {each.name for each in mine}
        usual = {
            name: fields[name].get_default(call_default_factory=True) for name in only or fields
        }
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=each)
            for name, each in usual.items()
            if name not in names
        ]
        known = names | usual.keys()

        @wraps(function)
        def checked(*given: Any, **options: Any) -> Any:
            for name in options:
                if name not in known:
                    raise RequestError(f"no option {name!r}{did_you_mean(name, sorted(known))}")
            return function(*given, **options)

        cast(Any, checked).__signature__ = own.replace(parameters=[*mine, *more])
        return cast(Function, checked)

    return taking


def _in_one_order(given: Any) -> Any:
    """Sets as lists in the same order in every process, and what is a mapping of them."""
    if isinstance(given, Mapping):
        return {name: _in_one_order(each) for name, each in given.items()}
    if not isinstance(given, (set, frozenset)):
        return given
    some = sorted(map(_in_one_order, given), key=repr)
    return sorted(some, key=lambda each: each if isinstance(each, (int, float)) else math.inf)


def _plain(given: Any) -> Any:
    """Numbers and columns of numpy and pandas as plain ones, at any depth."""
    if hasattr(given, "tolist"):
        return given.tolist()
    if isinstance(given, Mapping):
        return {name: _plain(each) for name, each in given.items()}
    if isinstance(given, (list, tuple)):
        return [_plain(each) for each in given]
    return given
