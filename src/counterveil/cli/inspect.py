"""`counterveil inspect`: what a veil is, what it promises, and whether its networks follow."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.panel import Panel
from rich.text import Text
from typer import Argument, Exit

from counterveil.cli import options
from counterveil.cli.options import open_veil, option
from counterveil.hints import named
from counterveil.terminal import out, print_facts, print_json, say, visible

if TYPE_CHECKING:
    from counterveil.privacy import Statement
    from counterveil.veil import Veil


def inspect(
    veil_file: Path = Argument(..., metavar="VEIL", help="A veil file."),
    trust: list[Path] | None = options.TRUST,
    recompute: bool = option(
        False, "Compute population and networks from the noisy record again, and compare."
    ),
    as_json: bool = options.JSON,
) -> None:
    """Show what a veil is, what it promises and who signed it.

    With --recompute, see whether its networks follow from its noisy record: they are trained again
    as its statement says, which takes as long as in the release. Exit code 1 unless all numbers are
    equal; another processor or release of torch may round otherwise.
    """
    from counterveil.signature import PublicKey, signer_dict, signer_line
    from counterveil.veil_file import VeilFile

    if recompute:
        _recompute(open_veil(veil_file, trust), as_json=as_json)
        return
    veil = VeilFile.load(veil_file)
    if trust:
        veil = veil.check_signer([PublicKey.load(file) for file in trust])
    schema = veil.schema
    if as_json:
        content = {"digest": veil.digest, "signature": signer_dict(veil.signer)}
        content |= {"schema": json.loads(schema.to_json())}
        print_json(content | {"statement": veil.statement.model_dump(mode="json")})
        return
    label = schema.label
    classes = [label.shown_value(name) for name in label.classes]
    print_facts(
        {
            "table": schema.name,
            "label": f"{label.shown_name}: {named(classes)}",
            "features": f"{len(schema.columns)} columns, {schema.width} encoded numbers",
            "private model": "yes: counterveil model" if veil.manifest["surrogate"] else "none",
            "digest": veil.digest,
            "signature": signer_line(veil.signer),
        }
    )
    out.print(statement_panel(veil.statement))


def statement_panel(statement: "Statement") -> Panel:
    """The privacy statement in a frame; red where nothing is guaranteed."""
    return Panel(
        Text("\n".join(visible(line) for line in statement.text().splitlines())),
        title=f"[bold]privacy statement · guarantee: {statement.level.value}",
        border_style="red" if statement.level.value == "none" else "green",
    )


def _recompute(veil: "Veil", *, as_json: bool) -> None:
    from counterveil import recompute

    found = recompute.recompute(veil)
    if as_json:
        print_json({"digest": veil.digest, "equal": found.equal, **asdict(found)})
    else:
        print_facts(
            {
                each.part: f"{each.numbers:,} numbers, "
                + ("equal" if each.equal else f"differ by up to {each.difference:.3g}")
                for each in found.parts
            }
        )
        asked = f"{found.alike:,} of {recompute.ASKED:,} rows of the population"
        say(f"the private model and the one computed anew decide alike on {asked}")
        say("equal: all of it follows from the noisy record" if found.equal else "not equal")
        if not found.equal:
            made = ", ".join(f"{name} {each}" for name, each in veil.statement.versions.items())
            say(f"made with {made}; other versions and processors may round otherwise")
    if not found.equal:
        raise Exit(1)
