"""The `counterveil ledger` commands: open an account, show what was spent."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from counterveil.console import Json, cell, out, print_json, visible

if TYPE_CHECKING:
    from counterveil.privacy.ledger import Account, Amount, Entry

ledger_app = typer.Typer(
    no_args_is_help=True,
    help="The account of privacy spent per dataset.\n\n"
    "Every release from the same rows adds its ε and δ to what can be learnt about them. A ledger "
    "fixes the total before the first release and refuses what goes beyond it. A charge is never "
    "refunded, not even after a crash.",
)
File = Annotated[Path, typer.Argument(help="The ledger, for example ledger.db.")]


@ledger_app.command("open")
def open_account(
    file: File,
    dataset: Annotated[str, typer.Option(help="The name of the rows; releases charge it.")],
    epsilon: Annotated[float, typer.Option(help="The ε that all releases may spend together.")],
    delta: Annotated[float, typer.Option(help="The same for δ; 0 allows pure ε only.")] = 0.0,
) -> None:
    """Open an account for a dataset; makes the ledger file where there is none.

    The total is fixed for good: choose it before the first release, for everything that will ever
    be released from these rows.
    """
    from counterveil.privacy.budget import Budget
    from counterveil.privacy.ledger import Amount, Ledger

    total = Budget(epsilon, delta)
    Ledger(file).open_account(dataset, total)
    out.print(Text(f"{visible(dataset)} may spend {Amount.of(total)} in all"))


@ledger_app.command("show")
def show(
    file: File,
    dataset: Annotated[str | None, typer.Option(help="This dataset only.")] = None,
    as_json: Json = False,
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
        content = {"accounts": [_account_json(account) for account in accounts],
                   "entries": [asdict(entry) for entry in entries]}  # fmt: skip
        print_json(content)
        return
    out.print(_account_table(accounts))
    for account in accounts:
        charges = [entry for entry in entries if entry.dataset == account.dataset]
        title = Text(f"charges to {visible(account.dataset)}" + ("" if charges else ": none yet"))
        out.print(_charge_table(title, charges) if charges else title)


def _account_table(accounts: list[Account]) -> Table:
    table = Table(title="accounts", title_justify="left")
    for heading in ("dataset", "total", "spent", "remaining"):
        table.add_column(heading)
    for account in accounts:
        amounts = (account.total, account.spent, account.remaining)
        table.add_row(cell(account.dataset), *(cell(str(amount)) for amount in amounts))
    return table


def _charge_table(title: Text, charges: list[Entry]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("time (UTC)", "ε", "δ", "what", "state", "veil"):
        table.add_column(heading, no_wrap=heading != "what")
    for entry in charges:
        time = entry.time[:16].replace("T", " ")
        price = f"{entry.epsilon:g}", f"{entry.delta:g}"
        words = (time, *price, entry.what, entry.state, (entry.digest or "–")[:12])
        table.add_row(*map(cell, words))
    return table


def _account_json(account: Account) -> dict[str, Any]:
    def numbers(amount: Amount) -> dict[str, float]:
        return {"epsilon": float(amount.epsilon), "delta": float(amount.delta)}

    return {
        "dataset": account.dataset,
        "total": numbers(account.total),
        "spent": numbers(account.spent),
        "remaining": numbers(account.remaining),
        "opened": account.opened,
    }
