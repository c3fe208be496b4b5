"""`counterveil serve` and `counterveil studio`: either side as a page, and over HTTP."""

import secrets
from pathlib import Path

from counterveil.cli import options
from counterveil.cli.options import option
from counterveil.errors import RequestError
from counterveil.terminal import say


def serve(
    *,
    veil: options.OfVeil,
    model: options.OfModel,
    guidance: str = option("model", "model, or surrogate: never asks the model that decides."),
    keys: Path | None = option(
        None, "Who may ask: a file made by `counterveil keys new --api`. Needed beyond localhost."
    ),
    host: str = option("127.0.0.1", "The address to listen on."),
    port: int = option(8080, "The port; 0 takes any that is free.", min=0, max=65535),
    name: list[str] | None = option(
        None, "A host name that the service is reached by; repeat for more."
    ),
    most_rows: int = option(1000, "Of one JSON request; streams may have more.", min=1),
    at_once: int = option(256, "Rows of one search; 1 answers each request by itself.", min=1),
    seconds: float = option(30.0, "After which a search is given up.", min=0.1),
    log: bool = option(False, "A line for each request: never with values.", "--log"),
    device: str = options.DEVICE,
) -> None:
    """Answer over HTTP and on a page: what would have to be different?

    The page is at the address that is printed; POST /v1/explain takes rows as JSON, and
    /v1/openapi.json describes the rest. Stop it with Ctrl-C: questions under way are answered.
    """
    with options.needs_serve("serve"):
        from counterveil.service import run
        from counterveil.service.access import AccessKeys
        from counterveil.service.app import Settings
        from counterveil.service.guard import is_local, own_hosts

    if keys is None and not is_local(host):
        raise RequestError(
            f"--host {host}: without keys only this machine may ask; make a file of keys "
            "(counterveil keys new --api FILE) and give it as --keys"
        )
    access = None if keys is None else AccessKeys(keys)
    explainer = model.explainer(veil.open(), guidance, device=device)
    listening = run.bound_socket(host, port)
    explainer.warm_up()
    settings = Settings(
        hosts=tuple(own_hosts(host, name or ())),
        keys=access,
        most_rows=most_rows,
        at_once=at_once,
        seconds=seconds,
        logs=log,
    )
    shown = f"[{host}]" if ":" in host else host
    say(f"http://{shown}:{listening.getsockname()[1]}/")
    say(explainer.statement.headline, "dim")
    run.serve(explainer, settings, listening)


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
    with options.needs_serve("studio"):
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
