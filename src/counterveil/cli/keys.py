"""`counterveil keys`: the keys that veils are signed with."""

from pathlib import Path

from rich.table import Table
from typer import Argument, Typer

from counterveil.cli.options import JSON, option
from counterveil.terminal import cell, out, print_json, say, wrote

keys_app = Typer(no_args_is_help=True, help="Keys that veils are signed with, and who has them.")


@keys_app.callback()
def _keys() -> None:
    pass


@keys_app.command("new")
def keys_new(
    name: str = option(..., "Who signs with it, as others will read it: 'Privacy office'."),
    out_file: Path = option(..., "The signing key, X.key; X.pub is written beside it.", "--out"),
) -> None:
    """Make a key pair: X.key signs and stays with you, X.pub is for everybody else.

    Whoever has X.key can sign in your name: keep it where only you can read it. Neither file is
    ever overwritten.
    """
    from counterveil.signature import SigningKey

    key = SigningKey.new(name)
    public = key.save(out_file)
    wrote(out_file, "  (keep it secret)")
    wrote(public, "  (for everybody who checks your veils)")
    say(f"fingerprint {key.public.fingerprint}")


@keys_app.command("show")
def keys_show(
    file: Path = Argument(..., help="A key: X.pub or X.key."),
    as_json: bool = JSON,
) -> None:
    """Show the name and the fingerprint of a key; compare the fingerprint with its owner."""
    from counterveil.signature import open_key

    kind, key = open_key(file)
    if as_json:
        print_json({"kind": kind, "name": key.name, "fingerprint": key.fingerprint})
        return
    facts = Table.grid(padding=(0, 2))
    facts.add_row("kind", cell(kind))
    facts.add_row("name", cell(key.name))
    facts.add_row("fingerprint", key.fingerprint)
    out.print(facts)
