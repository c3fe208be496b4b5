"""The `counterveil ledger` commands: open an account, show what was spent."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.table import Column, Table
from typer import Argument, Typer

from counterveil.cli.options import JSON, option
from counterveil.terminal import cell, out, print_json

ledger_app = Typer(
    no_args_is_help=True,
    help="The account of privacy spent per dataset.\n\n"
    "Every release from the same rows adds its ε and δ to what can be learnt about them. A ledger "
    "fixes the total before the first release and refuses what goes beyond it. A charge is never "
    "refunded, not even after a crash.",
)
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
    from counterveil.privacy.ledger import Amount, Ledger

    def numbers(amount: Amount) -> dict[str, float]:
        return {"epsilon": float(amount.epsilon), "delta": float(amount.delta)}

    ledger = Ledger(file)
    entries = ledger.entries(dataset)
    accounts = [account for account in ledger.accounts() if dataset in (None, account.dataset)]
    if as_json:
        shown = []
        for each in accounts:
            named = {"total": each.total, "spent": each.spent, "remaining": each.remaining}
            amounts = {name: numbers(amount) for name, amount in named.items()}
            shown.append({"dataset": each.dataset, **amounts, "opened": each.opened})
        print_json({"accounts": shown, "entries": [asdict(entry) for entry in entries]})
        return
    table = Table("dataset", "total", "spent", "remaining", title="accounts", title_justify="left")
    for each in accounts:
        table.add_row(*map(cell, (each.dataset, each.total, each.spent, each.remaining)))
    out.print(table)
    for account in accounts:
        title = f"charges to {account.dataset}"
        names = ("time (UTC)", "ε", "δ", "what", "state", "veil")
        headings = (Column(name, no_wrap=name != "what") for name in names)
        table = Table(*headings, title=cell(title), title_justify="left")
        for entry in (each for each in entries if each.dataset == account.dataset):
            time, digest = entry.time[:16].replace("T", " "), (entry.digest or "–")[:12]
            prices = f"{entry.epsilon:g}", f"{entry.delta:g}"
            table.add_row(*map(cell, (time, *prices, entry.what, entry.state, digest)))
        out.print(table if table.rows else cell(f"{title}: none yet"))
