"""Values that the page sends as text, and small files in an address."""

import base64
import math
from collections.abc import Sequence
from typing import Any

from counterveil.service.responses import Problem


def file_address(content: bytes, kind: str) -> str:
    """An address that holds a small file."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def number_in(text: str) -> float | int | str:
    """The number in a text; the text itself where it is none."""
    try:
        value = float(text)
    except ValueError:
        return text
    if not math.isfinite(value):
        return text
    return int(value) if value.is_integer() else value


def numbers_in(text: str) -> list[Any]:
    """The numbers in a text, between commas."""
    return [number_in(each) for each in text.split(",")] if text else []


def chosen_of(values: Sequence[Any], place: str) -> Any:
    """The value at a place that a form has sent."""
    if count_in(place) >= len(values):
        raise Problem(422, "the question is not understood", "Choose from the list.")
    return values[count_in(place)]


def count_in(text: str) -> int:
    """A count that the page has sent."""
    if not text.isdecimal() or len(text) > 9:
        raise Problem(422, "the question is not understood", "Ask from the page.")
    return int(text)
