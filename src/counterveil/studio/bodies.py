"""What the page may ask: the bodies of its requests."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from counterveil.schema import Category

Name = Annotated[str, Field(min_length=1, max_length=200)]
MOST_PLANS = 40  # of one request


class Body(BaseModel):
    """Nothing to choose."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class OfFile(Body):
    """A file of the folder."""

    file: Name


class AskDraft(OfFile):
    """A draft of a schema for a table."""

    label: str
    exclude: list[str] = []


class AskSave(Body):
    """Where a schema is written."""

    schema_name: Name
    replace: bool = False


class Unit(OfFile):
    """Rows and their schema, and whom the privacy is for; without a unit column, a record."""

    schema_file: Name
    unit_column: str | None = None
    max_records: Annotated[int, Field(ge=1)] | None = None


class Planned(Unit):
    """What a plan depends on besides ε. `groups`: columns whose groups are counted as well."""

    delta: float = 0.0
    groups: list[Name] = []


class AskPlans(Planned):
    """The plans of several ε at one δ."""

    epsilons: Annotated[list[float], Field(min_length=1, max_length=MOST_PLANS)]


class AskDeltas(Planned):
    """The plans of one ε at several δ: this one among them."""

    epsilon: float


class AskAccount(Body):
    """An account to be opened."""

    dataset: str
    epsilon: float
    delta: float = 0.0


class AskRelease(Planned):
    """A release. `id` is chosen by the page, once for every release that is meant."""

    id: Annotated[str, Field(pattern="^[0-9a-f-]{16,64}$")]
    epsilon: float
    veil: Name
    other_rows: bool = False


class AskTry(OfFile):
    """Answers for invented people who do not have the class `target` yet."""

    target: Category
    count: Annotated[int, Field(ge=1, le=20)] = 3


class AskActions(OfFile):
    """What would help most of the people of a veil who do not have the class `target` yet."""

    target: Category


class AskFairness(AskActions):
    """What decisions are like for the groups that these columns make."""

    groups: Annotated[list[Name], Field(min_length=1)]


class AskAttack(OfFile):
    """An attack on a veil. `table`: what it was released from; `others`: rows of other people.

    `model`: the model that is explained; None for the veil's private model. `attribute`: a column
    that the attacker tries to infer.
    """

    table: Name
    others: Name
    model: Name | None = None
    attribute: str | None = None
