"""`counterveil studio`: the curator's side in a browser, on this machine only."""

import secrets
from pathlib import Path

from counterveil.cli.options import needs_serve, option
from counterveil.terminal import say


def studio(
    folder: Path = option(Path(), "The folder with the tables; results go there too."),
    port: int = option(8090, "The port; 0 takes any that is free.", min=0, max=65535),
    ledger: Path | None = option(None, "The ledger; by default ledger.db in the folder."),
) -> None:
    """From a table to a veil in a browser, step by step. Reads the private rows.

    The page is at the address that is printed, for browsers of this machine only; keep the address
    to yourself, for whoever has it may release. Stop it with Ctrl-C: a release that is running ends
    its work all the same.
    """
    with needs_serve("studio"):
        from counterveil.service.run import bound_socket, serve_app
        from counterveil.studio.app import create_app
    from counterveil.studio.folder import Folder
    from counterveil.studio.steps import Steps

    place = Folder(folder)
    account_book = (place.path / "ledger.db") if ledger is None else ledger.absolute()
    token = secrets.token_urlsafe(32)
    listening = bound_socket("127.0.0.1", port)
    say(f"http://127.0.0.1:{listening.getsockname()[1]}/?token={token}")
    say(f"works in {place.path}; this machine only; stop it with Ctrl-C", "dim")
    serve_app(create_app(Steps(place, account_book), token), listening)
