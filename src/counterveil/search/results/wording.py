"""How explanations are written in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from counterveil.hints import either
from counterveil.schema import Category, Schema

Change = tuple[str, Any, Any]  # column, plain value before, plain value after
MOST_NAMED = 4  # values of a number that are listed by their names
TOO_NOISY = "The veil is too noisy at this ε to compare the answer with other people."
NO_PAIRS = (
    "The veil does not know which values go together: "
    "look whether the changes fit the other values."
)


OF_IMAGES = (
    "The effort is the mean change of a pixel, from 0 to 1.",
    "The plausibility is the share of images of the class, as the veil knows them, that are less "
    "usual than the answer.",
    "The stability is how often the class is still seen when the image is turned, slanted, moved "
    "or grained a little.",
)
OF_PEOPLE = (
    "The effort adds up how far the changed numbers move among all people, in shares of them; any "
    "other change counts 1.",
    "The plausibility is the share of people of the class, as the veil knows them, who are less "
    "usual than the answer.",
    "The stability is the share of other models, made from the veil for comparison, that agree.",
)


def warning(veil_knows: bool | None, knows_pairs: bool | None) -> str:
    """What a veil cannot tell about answers; "" where there is nothing to say."""
    if veil_knows is False:
        return TOO_NOISY
    return NO_PAIRS if knows_pairs is False else ""


class DecidedBy(StrEnum):
    """Whose decisions the answers turn around, and who was asked about them."""

    MODEL = "model"  # the target model f, which was asked about every answer
    PRIVATE_MODEL = "private model"  # f~ itself decides, and was asked about every answer
    STAND_IN = "stand-in"  # f~ was asked in place of the target model, which is not consulted

    @property
    def asked(self) -> str:
        """The model that was asked, as a sentence names it."""
        return "the veil's private model" if self is DecidedBy.STAND_IN else f"the {self.value}"

    @property
    def meaning(self) -> str:
        """How far a found answer can be relied on, in one sentence."""
        return {
            "model": "The model itself was asked about every answer.",
            "private model": "The veil's private model is the one that decides: it was asked about "
            "every answer.",
            "stand-in": "The target model was not asked: the veil's private model stands in for "
            "it, and answers are expected to carry over.",
        }[self.value]

    @property
    def verb(self) -> str:
        """What that model does: it says or decides a class."""
        return "decide" if self is DecidedBy.PRIVATE_MODEL else "say"

    def says(self, now: Category) -> str:
        """A sentence on what is decided now, and a space; "" where that is not known."""
        if self is DecidedBy.STAND_IN:
            return ""
        return f"{self.asked.capitalize()} {self.verb}s {now}. "


def show(value: Any, digits: int = 4) -> str:
    """A plain value as text. Fractions get `digits` significant digits, large numbers commas."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        large = abs(value) >= 10_000
        return f"{value:,.{digits - 4}f}" if large else f"{value:,.{digits}g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def show_both(before: Any, after: Any) -> tuple[str, str]:
    """Two different plain values as texts: the second in full, for it is what has to be reached.

    The first has enough digits to tell them apart.
    """
    for digits in range(4, 18):
        was, to = show(before, digits), show(after, digits)
        if was != to:
            return was, _in_full(after, digits)
    return repr(before), repr(after)


def _in_full(value: Any, digits: int) -> str:
    """A plain value as text, with all of its digits that are no float noise, `digits` at least."""
    texts = (show(value, more) for more in range(digits, 18))
    if not isinstance(value, float):
        return next(texts)
    exact = (each for each in texts if math.isclose(float(each.replace(",", "")), value))
    return next(exact, repr(value))


def told(schema: Schema, change: Change) -> tuple[str, str, str]:
    """A change as texts: what people call the column, its value before, and its value after."""
    column, *values = change
    shown = (schema.shown_value(column, value) for value in values)
    return schema.shown_name(column), *show_both(*shown)


def told_value(schema: Schema, column: str, value: Any) -> str:
    """A value that stays, as text: what people call the column, and the value."""
    return f"{schema.shown_name(column)} {show(schema.shown_value(column, value))}"


def condition(schema: Schema, changes: Sequence[Change]) -> str:
    """What would have to be different, to be read after "if". Pixels are only counted."""
    return _listed(schema, changes, "{name} were {to} instead of {was}", "pixels were different")


def given(schema: Schema, changes: Sequence[Change]) -> str:
    """The values after some changes, to be read after "with". Pixels are only counted."""
    return _listed(schema, changes, "{to} for {name}", "pixels different")


def _listed(schema: Schema, changes: Sequence[Change], each: str, counted: str) -> str:
    """Changes in a list with commas and an "and": `each` as it says, pixels `counted`."""
    pixels = pixel_columns(schema)
    shown = [told(schema, change) for change in changes if change[0] not in pixels]
    parts = [each.format(name=name, was=_quoted(was), to=_quoted(to)) for name, was, to in shown]
    if len(changes) > len(shown):
        parts.append(f"{len(changes) - len(shown)} of {len(pixels)} {counted}")
    return either(parts, "and")


def _quoted(text: str) -> str:
    """A value in a sentence: in quotation marks where it has a comma or an "and" of its own."""
    is_open = ", " in text or " and " in text
    return f"“{text}”" if is_open else text


def compared(schema: Schema, change: Change, share: float | None) -> str:
    """How many people of the target class have a changed number, or are beyond it; "" for nothing.

    To be read after `people_with`. `share`: at least so many of them, in tenths; 0, NaN or None
    where that is not known.
    """
    column, before, after = change
    tenths = round(10 * share) if share and not math.isnan(share) else 0
    there = _beyond(schema, column, after, rises=before is None or after > before) if tenths else ""
    return there and f"at least {tenths} in 10 have {there} for {schema.shown_name(column)}"


def people_with(goal: Category, told: Sequence[str]) -> str:
    """What is told of the people of the target class, which people call `goal`."""
    return f"Of people whose decision is “{goal}”, {either(told, 'and')}."


def _beyond(schema: Schema, column: str, value: float, *, rises: bool) -> str:
    """A number and all that are beyond it; values with names by their names, "" if too many."""
    feature = schema.feature(column)
    low, high = feature.number_range or (value, value)
    if feature.is_whole:
        there = range(int(value), int(high) + 1) if rises else range(int(low), int(value) + 1)
        if any(each in there for each, _ in feature.value_names):
            names = [_quoted(show(feature.shown_value(v))) for v in there[: MOST_NAMED + 1]]
            return either(names) if len(names) <= MOST_NAMED else ""
    end, more = (high, "or more") if rises else (low, "or less")
    return _in_full(value, 4) if value == end else f"{_in_full(value, 4)} {more}"


def agreement(share: float) -> str:
    """How many of the models that were learnt from the veil agree with an answer."""
    some = f"{share:.0%} of the" if share < 1 else "All"
    return f"{some} models trained for comparison decide the same."


def steadiness(share: float, goal: Category) -> str:
    """In how many views of an image the target class is still seen."""
    return (
        f"Turned, moved or grained a little, it is still taken for {goal} in {share:.0%} of cases."
    )


def meanings(schema: Schema, *, with_quality: bool) -> tuple[str, ...]:
    """What the numbers of an answer mean, a sentence each."""
    always = (
        "The probability is that of the other decision, with these changes.",
        "The distance is L2, every encoded number between 0 and 1.",
    )
    of_quality = OF_IMAGES if schema.family == "image" else OF_PEOPLE
    return (*always, *of_quality) if with_quality else always


def opening(now: Category, goal: Category, decided_by: DecidedBy) -> str:
    """The start of a sentence: what is decided now, and what would be."""
    if decided_by is DecidedBy.STAND_IN:
        return f"The model was not asked. The veil's private model would say {goal}"
    return f"{decided_by.says(now)}It would {decided_by.verb} {goal}"


def pixel_columns(schema: Schema) -> set[str]:
    return {column for image in schema.images for column in image.columns}


def same(before: Any, after: Any) -> bool:
    """Whether two plain values are the same; True is not 1."""
    return bool(before == after) and isinstance(before, bool) == isinstance(after, bool)
