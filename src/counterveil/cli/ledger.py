"""The `counterveil ledger` commands: open an account, show what was spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import TextType
from typer import Argument, Typer

from counterveil.cli.options import JSON, option
from counterveil.terminal import cell, out, print_json

if TYPE_CHECKING:
    from counterveil.privacy.ledger import Account, Amount, Entry

ledger_app = Typer(
    no_args_is_help=True,
    help="The account of privacy spent per dataset.\n\n"
    "Every release from the same rows adds its ε and δ to what can be learnt about them. A ledger "
    "fixes the total before the first release and refuses what goes beyond it. A charge is never "
    "refunded, not even after a crash.",
)
CHARGE = ("time (UTC)", "ε", "δ", "what", "state", "veil")
File = Annotated[Path, Argument(help="The ledger, for example ledger.db.")]


@ledger_app.command("open")
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


@ledger_app.command("show")
def show(
    file: File,
    dataset: str | None = option(None, "This dataset only."),
    as_json: bool = JSON,
) -> None:
    """Show what each dataset may spend, has spent and has left, and every single charge.

    A charge is "released" when its veil was finished. "reserved" means that a release is running
    or was cut off; it is spent all the same, because the rows may have been read.
    """
    from counterveil.privacy.ledger import Ledger

    ledger = Ledger(file)
    entries = ledger.entries(dataset)
    accounts = [account for account in ledger.accounts() if dataset in (None, account.dataset)]
    if as_json:
        shown = [_account_json(account) for account in accounts]
        print_json({"accounts": shown, "entries": [asdict(entry) for entry in entries]})
        return
    amounts = [(each.dataset, each.total, each.spent, each.remaining) for each in accounts]
    out.print(_table("accounts", ("dataset", "total", "spent", "remaining"), amounts))
    for account in accounts:
        charges = [_charge(entry) for entry in entries if entry.dataset == account.dataset]
        title = cell(f"charges to {account.dataset}" + ("" if charges else ": none yet"))
        out.print(_table(title, CHARGE, charges) if charges else title)


def _table(title: TextType, headings: Sequence[str], lines: Iterable[Sequence[object]]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, no_wrap=headings is CHARGE and heading != "what")
    for line in lines:
        table.add_row(*map(cell, line))
    return table


def _charge(entry: Entry) -> tuple[str, ...]:
    """The cells of one charge, under the headings `CHARGE`."""
    time = entry.time[:16].replace("T", " ")
    price = f"{entry.epsilon:g}", f"{entry.delta:g}"
    return time, *price, entry.what, entry.state, (entry.digest or "–")[:12]


def _account_json(account: Account) -> dict[str, Any]:
    def numbers(amount: Amount) -> dict[str, float]:
        return {"epsilon": float(amount.epsilon), "delta": float(amount.delta)}

    amounts = {name: numbers(getattr(account, name)) for name in ("total", "spent", "remaining")}
    return {"dataset": account.dataset, **amounts, "opened": account.opened}
