"""What may be asked: the body of a request, checked."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, WithJsonSchema
from starlette.requests import Request

from counterveil.options import Must
from counterveil.schema import Category
from counterveil.search import Rules
from counterveil.search.options import Prefer
from counterveil.service.responses import JSON, STREAM, Problem

MOST_WAYS = 10  # different answers to one row
MOST_COLUMNS = 20_000
WITH_MORE = 3  # times as much as without regions and letters
SHORT = 16_384  # bytes of a body that is read at once
Kind = TypeVar("Kind", bound=BaseModel)
Read = TypeVar("Read")
Cell = bool | int | float | str | None
Row = dict[str, Cell]


class Question(BaseModel):
    """How rows are to be explained."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"k": 2, "immutable": ["age"], "prefer": "believable"}]},
    )
    target: Annotated[
        Category | None,
        Field(description="The class to reach; by default the model's second most likely one."),
    ] = None
    k: Annotated[
        int,
        Field(ge=1, le=MOST_WAYS, description="Different ways for each row."),
        Must(f" must be a whole number from 1 to {MOST_WAYS}"),
    ] = 1
    prefer: Annotated[
        Prefer | None, Field(description="What is looked for; by default what suits the veil.")
    ] = None
    immutable: Annotated[
        list[str],
        Must(": must be a list of feature names"),
        Field(max_length=MOST_COLUMNS, description="Features that must stay."),
    ] = []
    rules: Annotated[
        Annotated[Rules, WithJsonSchema(Rules.model_json_schema())] | None,
        Field(description="What may change: see docs on rules. A rule that is null says nothing."),
    ] = None
    regions: Annotated[
        bool,
        Field(description="With what works of each change, and the main reasons; takes longer."),
    ] = False
    letter: Annotated[
        Literal["en", "de"] | None,
        Field(
            description="With a letter to the person in this language, and what works of each "
            "change in words. Not for images; takes longer."
        ),
    ] = None

    @property
    def cost(self) -> int:
        """What a row costs: 1 for each way, and more with what is found out besides."""
        return self.k * (WITH_MORE if self.regions or self.letter else 1)

    @property
    def all_rules(self) -> Rules | None:
        """The rules, with the features that must stay; None where everything may change."""
        if self.rules is None and not self.immutable:
            return None
        return (self.rules or Rules()).and_immutable(self.immutable)


class Explain(Question):
    """Rows to explain, in original units, and how."""

    rows: Annotated[list[Row], Field(min_length=1, description="Columns of the schema.")]


class Decide(BaseModel):
    """Rows to decide about, in original units."""

    model_config = ConfigDict(extra="forbid")
    rows: Annotated[list[Row], Field(min_length=1, description="Columns of the schema.")]


class Line(RootModel[Row]):
    """One row of a stream."""


def takes(body: type[BaseModel], *, streams: bool = False) -> dict[str, Any]:
    """What OpenAPI says of a body."""
    content: dict[str, Any] = {JSON: {"schema": body.model_json_schema()}}
    if streams:
        content[STREAM] = {"schema": {"type": "string"}}
    return {"requestBody": {"required": True, "content": content}}


_one_at_a_time = ThreadPoolExecutor(1, thread_name_prefix="long bodies")


async def asked_in(request: Request, kind: type[Kind]) -> Kind:
    """The question in the body of a request."""
    return await read_in(request, lambda body: parsed(kind, body))


async def read_in(request: Request, read: Callable[[bytes], Read]) -> Read:
    """What `read` makes of a body; long ones are read beside, one after the other."""
    body = await request.body()
    if len(body) <= SHORT:
        return read(body)
    return await asyncio.get_running_loop().run_in_executor(_one_at_a_time, read, body)


def bearer_of(request: Request) -> str:
    """The key or token that a request is sent with; "" where there is none."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else ""


def form_of(body: bytes) -> dict[str, str]:
    """The fields of a form of the page, by name."""
    try:
        text, most = body.decode("ascii"), 3 * MOST_COLUMNS
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=most)
    except ValueError:
        raise Problem(400, "the body is no form", "Ask from the page.") from None
    return dict(pairs)


def parsed(kind: type[Kind], body: bytes) -> Kind:
    """The question in a body; a Problem that names the place of what is wrong, never a value."""
    try:
        text = body.decode(json.detect_encoding(body))
        content = json.loads(text, parse_constant=_no_number, object_pairs_hook=_each_once)
        if "\\u" in text:
            json.dumps(content, ensure_ascii=False).encode()  # half a letter is no text
    except (ValueError, RecursionError):
        detail = "Send a JSON object in UTF-8, in which no name is there twice."
        raise Problem(400, "the body is not JSON", detail) from None
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(_place(part) for part in first["loc"][:4]) or "the body"
        raise Problem(422, "the question is not understood", f"{place}: {first['msg']}") from None


def _place(part: int | str) -> str:
    return str(part + 1) if isinstance(part, int) else part[:60]


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_number(name: str) -> None:
    raise ValueError("NaN and Infinity are no JSON")
