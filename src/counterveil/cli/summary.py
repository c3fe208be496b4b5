"""`counterveil summary`: the few actions that would help most people."""

from pathlib import Path

from counterveil.cli import options
from counterveil.cli.options import option, read_rules
from counterveil.errors import RequestError
from counterveil.terminal import print_json, print_table, say, warn, wrote


def summary(
    *,
    veil: options.OfVeil,
    queries: Path | None = option(
        None,
        "A table of people, about whom the figures are then exact; by default people drawn from "
        "the veil.",
    ),
    model: options.OfModel,
    target: str | None = option(None, "The class to get; by default the last of the label."),
    groups: str | None = option(None, "Features to tell value by value as well: sex,race."),
    rules: Path | None = option(None, "A JSON file: what everybody may change (docs/rules.md)."),
    most: int = option(5, "How many actions, for everybody and for each group.", min=1, max=50),
    draw: int = option(1000, "How many people are drawn from the veil.", min=1, max=100_000),
    out_file: Path | None = option(None, "Write a page, X.html, or X.json.", "--out"),
    as_json: bool = options.JSON,
) -> None:
    """The few actions that would help most people: whom each would help, with how much effort.

    Each action is tried on everybody who does not get the class and may take it, and the model is
    asked about them. Without --queries that costs no ε.
    """
    import json

    from counterveil.files import write_whole
    from counterveil.search.action_summary import MEANINGS
    from counterveil.tables import read_table

    options.check_outputs({"--out": out_file}, *veil.files, queries, model.model, rules)
    options.check_ending(out_file, ".html", ".json")
    opened = veil.open()
    asked = read_rules(rules)
    if isinstance(asked, list):
        raise RequestError(f"--rules {rules}: give one object, for everybody")
    explainer = model.explainer(opened)
    people = None if queries is None else read_table(queries, opened.schema)
    if queries is not None:
        warn(
            f"what this tells of the rows of {queries} is exact, and no ε covers it: keep it to "
            "those who may see them"
        )
    found = explainer.summary_of_actions(
        people,
        target,
        most=most,
        groups=groups.split(",") if groups else (),
        rules=asked,
        draw=draw,
    )
    if out_file is not None:
        is_page = out_file.suffix.lower() == ".html"
        content = found.to_html() if is_page else json.dumps(found.to_dict(), ensure_ascii=False)
        write_whole(out_file, content.encode("utf-8", "replace"))
    if as_json:
        print_json(found.to_dict())
        return
    say(found.headline)
    for title, actions in found.groups():
        print_table(("action", "helps", "effort", "so far", "have it"), actions, title)
    say(MEANINGS, "dim")
    if out_file is not None:
        wrote(out_file)
