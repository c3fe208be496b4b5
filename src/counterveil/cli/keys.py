"""`counterveil keys`: the keys that veils are signed with, and those that open a service."""

import sys
from pathlib import Path

from typer import Argument, Typer

from counterveil.cli.options import JSON, command, option
from counterveil.terminal import print_facts, print_json, print_table, say, wrote

keys_app = Typer(
    no_args_is_help=True, help="Keys that veils are signed with, and API keys of a service."
)


@command(
    keys_app,
    "new",
    "nothing. Writes the files of the key.",
    "keys new --name 'Privacy office' --out office.key",
    "keys new --name 'Branch 7' --api keys.db",
)
def keys_new(
    name: str = option(..., "Who signs with it, as others will read it: 'Privacy office'."),
    out_file: Path | None = option(
        None, "The signing key, X.key; X.pub is written beside it.", "--out"
    ),
    api: Path | None = option(
        None, "Make an API key instead, for `serve --keys FILE`; FILE may exist.", "--api"
    ),
    rows_a_minute: int = option(600, "That an API key may ask about.", min=1),
    answers_a_day: int = option(
        1000, "That an API key gets about a model; the private model's are not counted.", min=1
    ),
) -> None:
    """Make a key pair to sign with (--out), or an API key of a service (--api).

    X.key signs and stays with you, X.pub is for everybody else. Whoever has X.key can sign in your
    name: keep it where only you can read it. Neither file is ever overwritten. An API key is shown
    once; the file holds a digest of it.
    """
    from counterveil.errors import RequestError
    from counterveil.signature import SigningKey

    if api is not None and out_file is None:
        from counterveil.service.access import AccessKeys

        made = AccessKeys(api, create=True).new(name, rows_a_minute, answers_a_day)
        sys.stdout.write(f"{made}\n")
        sys.stderr.write(f"the API key of {name}: it is shown this once\n")
    elif out_file is not None and api is None:
        key = SigningKey.new(name)
        public = key.save(out_file)
        wrote(out_file, "  (keep it secret)")
        wrote(public, "  (for everybody who checks your veils)")
        say(f"fingerprint {key.public.fingerprint}")
    else:
        raise RequestError("give --out X.key for a signing key, or --api FILE for an API key")


@command(keys_app, "show", "the key.", "keys show office.pub")
def keys_show(
    file: Path = Argument(..., help="A key: X.pub or X.key."), as_json: bool = JSON
) -> None:
    """Show the name and the fingerprint of a key; compare the fingerprint with its owner."""
    from counterveil.signature import open_key

    kind, key = open_key(file)
    show = print_json if as_json else print_facts
    show({"kind": kind, "name": key.name, "fingerprint": key.fingerprint})


@command(keys_app, "list", "the file of keys.", "keys list keys.db")
def keys_list(file: Path = Argument(..., help="A file of API keys."), as_json: bool = JSON) -> None:
    """Show who has API keys, and what each has used today (UTC)."""
    from dataclasses import asdict

    from counterveil.service.access import AccessKeys

    entries = AccessKeys(file).entries()
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    rows = ([*(asdict(entry) | {"revoked": entry.revoked or ""}).values()] for entry in entries)
    print_table(("name", "made", "revoked", "rows a minute", "answers a day", "used today"), rows)


@command(keys_app, "revoke", "and writes the file of keys.", "keys revoke keys.db 'Branch 7'")
def keys_revoke(
    file: Path = Argument(..., help="A file of API keys."),
    name: str = Argument(..., help="Whose key is to open nothing any more."),
) -> None:
    """Revoke an API key: a running service refuses it from the next request on."""
    from counterveil.service.access import AccessKeys

    AccessKeys(file).revoke(name)
    say(f"revoked: {name}")
