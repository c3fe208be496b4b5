"""The `counterveil ledger` commands: open an account, show what was spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Column, Table
from rich.text import Text
from typer import Argument, Typer

from counterveil.cli.options import JSON, command, option
from counterveil.terminal import cell, out, print_json, print_table

if TYPE_CHECKING:
    from counterveil.privacy.ledger import Account, Entry

ledger_app = Typer(
    no_args_is_help=True,
    help="The account of privacy spent per dataset.\n\n"
    "Every release from the same rows adds its ε and δ to what can be learnt about them. A ledger "
    "fixes the total before the first release and refuses what goes beyond it. A charge is never "
    "refunded, not even after a crash.",
)
File = Annotated[Path, Argument(help="The ledger, for example ledger.db.")]


@command(ledger_app, "open", "no rows.", "ledger open ledger.db --dataset loans --epsilon 2")
def open_account(
    file: File,
    dataset: str = option(..., "The name of the rows; releases charge it."),
    epsilon: float = option(..., "The ε that all releases may spend together."),
    delta: float = option(0.0, "The same for δ; 0 allows pure ε only."),
) -> None:
    """Open an account for a dataset; makes the ledger file where there is none.

    The total is fixed for good: choose it before the first release, for everything that will ever
    be released from these rows.
    """
    from counterveil.privacy import Budget
    from counterveil.privacy.ledger import Amount, Ledger

    total = Budget(epsilon, delta)
    Ledger(file).open_account(dataset, total)
    out.print(cell(f"{dataset} may spend {Amount.of(total)} in all"))


@command(
    ledger_app, "show", "the ledger alone.", "ledger show ledger.db", "ledger show ledger.db --json"
)
def show(
    file: File, dataset: str | None = option(None, "This dataset only."), as_json: bool = JSON
) -> None:
    """Show what each dataset may spend, has spent and has left, and every single charge.

    A charge is "released" when its veil was finished. "reserved" means that a release is running
    or was cut off; it is spent all the same, because the rows may have been read. An exact look is
    a check of the rows by the curator: what it shows depends on them exactly, and no ε covers it.
    """
    from counterveil.privacy.ledger import Ledger

    ledger = Ledger(file)
    entries = ledger.entries(dataset)
    accounts = [account for account in ledger.accounts() if dataset in (None, account.dataset)]
    if as_json:
        shown = [_account_as_json(account) for account in accounts]
        print_json({"accounts": shown, "entries": [asdict(entry) for entry in entries]})
        return
    rows = [(each.dataset, each.total, each.spent, each.remaining) for each in accounts]
    print_table(("dataset", "total", "spent", "remaining"), rows, "accounts")
    for account in accounts:
        title = f"charges to {account.dataset}"
        if account.subject:
            title += f"; each protects {account.subject.protects}"
        headings = (Column(name, no_wrap=name != "what") for name in _HEADINGS)
        table = Table(*headings, title=cell(title), title_justify="left")
        for entry in (each for each in entries if each.dataset == account.dataset):
            table.add_row(*(Text("\n").join(map(cell, lines)) for lines in _lines(entry)))
        out.print(table if table.rows else cell(f"{title}: none yet"))


_HEADINGS = ("time (UTC)", "price", "what", "rows", "state")


def _lines(entry: Entry) -> Iterator[list[str]]:
    """The lines of each cell of an entry's row, in the order of the headings."""
    yield [entry.time[:10], entry.time[11:16]]
    if entry.kind == "looked":
        yield ["none"]
        yield [entry.what]
        yield ["all"]
        yield ["exact look by", "the curator:", "no ε covers it"]
        return
    yield [f"ε {entry.epsilon:g}", *([f"δ {entry.delta:g}"] if entry.delta else [])]
    yield [entry.what, *(["declared other people"] if entry.other_rows else [])]
    if entry.subject:
        what = {"record": "rows", "person": "people"}[entry.subject.unit]
        yield [f"{entry.subject.units:,} {what}", f"columns {entry.subject.columns[:4]}"]
    else:
        yield ["not known"]
    yield [entry.state, *([entry.digest[:12]] if entry.digest else [])]


def _account_as_json(account: Account) -> dict[str, object]:
    subject = account.subject
    return {
        "dataset": account.dataset,
        **account.amounts,
        "opened": account.opened,
        "unit": subject and subject.unit,
        "unit_column": subject and (subject.unit_column or None),
        "max_records": subject and subject.max_records,
        "relation": subject and subject.relation,
        "looks": account.looks,
    }
