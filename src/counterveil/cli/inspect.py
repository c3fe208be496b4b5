"""`counterveil inspect`: what a veil is, what it promises, and whether its networks follow."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Exit

from counterveil.cli import options
from counterveil.cli.options import open_veil, option
from counterveil.hints import named
from counterveil.terminal import out, print_facts, print_json, say

if TYPE_CHECKING:
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
    from counterveil.report import statement_panel
    from counterveil.signature import signer_dict, signer_line

    veil = open_veil(veil_file, trust)
    if recompute:
        _recompute(veil, as_json=as_json)
        return
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
            "private model": "none" if veil.surrogate is None else "yes: counterveil model",
            "digest": veil.digest,
            "signature": signer_line(veil.signer),
        }
    )
    out.print(statement_panel(veil.statement))


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
