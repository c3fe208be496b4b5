"""The cases by area: each changes files of the small project and gives the words of a command."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from counterveil_lab.fuzz import damage, damaged_tables

EXPLAIN = (
    *("explain", "--veil", "loans.veil", "--model", "model.pt2", "--queries", "queries.csv"),
)
RELEASE = ("release", "--data", "rows.csv", "--schema", "schema.json", "--epsilon", "1")
NEW_VEIL = ("--epochs", "1", "--out", "new.veil")
LEDGER = ("--ledger", "ledger.db", "--dataset", "loans")
SURROGATE = ("explain", "--veil", "loans.veil", "--queries", "queries.csv", "--guidance")


@dataclass
class Case:
    """One command on changed files. `stdout`: a file, or one that is ascii, closed or full."""

    number: int
    area: str
    kind: str
    arguments: list[str]
    stdout: str = "file"
    failures: list[str] = field(default_factory=list)
    code: int | None = None
    seconds: float = 0.0
    megabytes: float = 0.0
    errors: str = ""
    said: int = 0  # bytes on standard output

    def text(self) -> str:
        """The case, and what was wrong with it, in some lines."""
        shown = [
            word if len(word) < 60 else f"{word[:50]}…({len(word)})" for word in self.arguments
        ]
        head = f"case {self.number} ({self.area}, {self.kind}): {'; '.join(self.failures) or 'ok'}"
        lines = [
            head,
            f"  {shown!r} stdout={self.stdout} code={self.code}",
            *self.errors[:600].splitlines(),
        ]
        return "\n".join(ascii(line)[1:-1] for line in lines)


Planned = tuple[str, list[str]]


def _spoil(path: Path, mutator: Callable[..., tuple[str, bytes]], dice: Random) -> str:
    kind, content = mutator(path.read_bytes(), dice)
    path.write_bytes(content)
    return kind


def _veil(folder: Path, dice: Random) -> Planned:
    mutator = dice.choice((damage.of_bytes, damage.of_zip, damage.of_zip))
    kind = _spoil(folder / "loans.veil", mutator, dice)
    commands = (
        ("inspect", "loans.veil"),
        ("inspect", "loans.veil", "--json"),
        (*EXPLAIN, "--out", "out.csv"),
        (*SURROGATE, "surrogate"),
    )
    return kind, list(dice.choice(commands))


def _model(folder: Path, dice: Random) -> Planned:
    mutator = dice.choice((damage.of_bytes, damage.of_zip, damage.of_zip))
    kind = _spoil(folder / "model.pt2", mutator, dice)
    if dice.random() < 0.1:  # content of one kind under the name of another
        name = f"model{dice.choice(('.onnx', '.skops', '.json', '.ubj', '.txt', '.pt', '.x', ''))}"
        (folder / "model.pt2").rename(folder / name)
        return "renamed", [*EXPLAIN, "--model", name]
    return kind, [*EXPLAIN, "--out", "out.json"]


def _other_model(folder: Path, dice: Random) -> Planned:
    ending = dice.choice((".onnx", ".skops", ".json", ".ubj", ".txt"))
    mutators: dict[str, Callable[..., tuple[str, bytes]]] = {
        ".skops": damage.of_zip,
        ".json": damage.of_json,
    }
    usual = damage.of_bytes
    mutator = mutators.get(ending, usual) if dice.random() < 0.7 else usual
    _spoil(folder / f"other{ending}", mutator, dice)
    named = ("--model-classes", "refused,granted", "--model-input", "encoding")
    return ending[1:], [*EXPLAIN, "--model", f"other{ending}", *named]


def _schema(folder: Path, dice: Random) -> Planned:
    mutator = dice.choice((damage.of_bytes, damage.of_json, damage.of_json))
    kind = _spoil(folder / "schema.json", mutator, dice)
    return kind, [*RELEASE, *(NEW_VEIL if dice.random() < 0.2 else ("--dry-run",))]


def _table(folder: Path, dice: Random) -> Planned:
    ending, mutator = dice.choice(
        ((".csv", damaged_tables.of_csv), (".parquet", damaged_tables.of_parquet))
    )
    which = dice.choice(("rows", "rows", "queries"))
    kind = _spoil(folder / f"{which}{ending}", mutator, dice)
    commands: tuple[tuple[str, ...], ...] = ((*EXPLAIN, "--queries", f"queries{ending}"),)
    if which == "rows":
        private = (*RELEASE, "--data", f"rows{ending}")
        draft = ("schema", "draft", f"rows{ending}", "--label", "loan")
        commands = (
            *((*private, "--dry-run"), (*private, *NEW_VEIL), (*private, *NEW_VEIL, *LEDGER)),
            *(draft, (*draft, "--exclude", "note"), (*draft, "--out", "new.json")),
            (*private, "--dry-run", "--unit-column", "member", "--max-records", "2"),
        )
    return f"{ending[1:]}-{kind}", list(dice.choice(commands))


def _rules(folder: Path, dice: Random) -> Planned:
    mutator = dice.choice((damage.of_bytes, damage.of_json, damage.of_json))
    kind = _spoil(folder / "rules.json", mutator, dice)
    if dice.random() < 0.2:
        content = (folder / "rules.json").read_bytes()
        (folder / "rules.json").write_bytes(b"[" + b",".join([content] * 3) + b"]")
        kind = "list"
    return kind, [*EXPLAIN, "--rules", "rules.json", "--out", "out.csv"]


def _ledger(folder: Path, dice: Random) -> Planned:
    path = folder / "ledger.db"
    kind, content = damaged_tables.of_ledger(path.read_bytes(), folder / "scratch.db", dice)
    path.write_bytes(content)
    commands = (
        ("ledger", "show", "ledger.db"),
        ("ledger", "show", "ledger.db", "--json"),
        ("ledger", "open", "ledger.db", "--dataset", "new", "--epsilon", "1"),
        (*RELEASE, *NEW_VEIL, *LEDGER),
    )
    return kind, list(dice.choice(commands))


def _key(folder: Path, dice: Random) -> Planned:
    name = dice.choice(("office.key", "office.pub"))
    kind = _spoil(folder / name, damage.of_bytes, dice)
    commands = (
        ("keys", "show", name),
        ("inspect", "loans.veil", "--trust", name),
        (*RELEASE, *NEW_VEIL, "--sign", name),
    )
    return kind, list(dice.choice(commands))


NUMBERS = {
    "explain": (
        *("--k", "--max-changes", "--margin", "--iterations", "--seed"),
        *("--model-epsilon", "--model-delta", "--show"),
    ),
    "release": ("--epsilon", "--delta", "--max-records", "--order", "--epochs", "--seed"),
    "open": ("--epsilon", "--delta"),
    "audit": ("--epsilon", "--draws", "--runs", "--seed"),
    "demo": ("--queries", "--epochs", "--seed", "--workers"),
}
NAMES = {
    "explain": (
        *("--target", "--immutable", "--guidance", "--method", "--device", "--model-input"),
        *("--model-outputs", "--model-classes"),
    ),
    "release": ("--mechanism", "--dataset", "--unit-column", "--device"),
    "draft": ("--label", "--exclude"),
    "open": ("--dataset",),
    "show": ("--dataset",),
    "audit": ("--mechanism",),
    "check": ("--dataset", "--unit-column"),
    "new": ("--name",),
}
PATHS = {
    "explain": ("--veil", "--queries", "--model", "--rules", "--out", "--report"),
    "release": ("--data", "--schema", "--out", "--ledger", "--sign"),
    "draft": ("--out",),
    "check": ("--data", "--schema", "--ledger"),
    "new": ("--out",),
    "trust": ("--trust",),
}
COMMANDS = {
    "explain": (*EXPLAIN, "--out", "out.csv", "--report", "out.html"),
    "release": (*RELEASE, *NEW_VEIL, *LEDGER),
    "draft": ("schema", "draft", "rows.csv", "--label", "loan", "--out", "new.json"),
    "open": ("ledger", "open", "ledger.db", "--dataset", "new", "--epsilon", "1"),
    "show": ("ledger", "show", "ledger.db"),
    "inspect": ("inspect", "loans.veil"),
    "check": ("check", "--data", "rows.csv", "--schema", "schema.json", *LEDGER),
    "new": ("keys", "new", "--name", "office", "--out", "new.key"),
    "trust": ("inspect", "loans.veil", "--trust", "office.pub"),
    # These work for minutes: an ending that is refused keeps them from it.
    "audit": ("audit", "--out", "audit.txt"),
    "demo": ("demo", "--out", "rows.csv"),
}


def _arguments(folder: Path, dice: Random) -> Planned:
    kind = dice.choice(("number", "number", "name", "path", "path", "words"))
    table = {"number": NUMBERS, "name": NAMES, "path": PATHS}.get(kind)
    command = dice.choice(list(table or COMMANDS))
    words = list(COMMANDS[command])
    for _ in range(dice.choice((1, 1, 2))):
        if table is None:
            match dice.choice(("drop", "double", "word", "nothing")):
                case "drop":
                    del words[dice.randrange(len(words))]
                case "double":
                    words.insert(dice.randrange(len(words)), dice.choice(words))
                case "word":
                    odd = dice.choice((*damage.NASTY_NAMES, *damage.NASTY_NUMBERS))
                    words[dice.randrange(len(words))] = odd
                case _:
                    del words[dice.randrange(len(words)) :]
            if not words:
                break
            continue
        option = dice.choice(table[command])
        odd = {
            "number": lambda: dice.choice(damage.NASTY_NUMBERS),
            "name": lambda: dice.choice(damage.NASTY_NAMES),
            "path": lambda: _odd_path(folder, dice),
        }[kind]()
        if option in words and dice.random() < 0.9:
            words[words.index(option) + 1] = odd
        else:
            words += [option, odd]
    if command == "demo" and words[-1:] != ["rows.csv"] and "rows.csv" not in words:
        words += ["--out", "rows.csv"]
    if command == "audit" and "audit.txt" not in words:
        words += ["--out", "audit.txt"]
    return kind, words


def _odd_path(folder: Path, dice: Random) -> str:
    ending = dice.choice(
        (".csv", ".parquet", ".veil", ".json", ".pt2", ".db", ".html", ".onnx", "")
    )
    odd = folder / f"odd{ending}"
    if odd.is_symlink() or odd.exists():
        return odd.name
    match dice.choice(("folder", "fifo", "device", "loop", "dangling", "empty", "other", "name")):
        case "folder":
            odd.mkdir()
        case "fifo":
            os.mkfifo(odd)
        case "device":
            odd.symlink_to(dice.choice(("/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem")))
        case "loop":
            odd.symlink_to(odd)
        case "dangling":
            odd.symlink_to(folder / "nowhere" / "x")
        case "empty":
            odd.write_bytes(b"")
        case "other":
            files = sorted(path.name for path in folder.iterdir() if path.is_file())
            return dice.choice(files)
        case _:
            names = ("x" * 250, "x" * 5000, "é€😀", "a\nb", "no/such/folder/x", "\udc80", "~", "/")
            return dice.choice(names) + ending
    return odd.name


def _output(folder: Path, dice: Random) -> Planned:
    (folder / "queries.csv").write_text(
        (folder / "queries.csv").read_text().replace("note", dice.choice(("note", "nöte")))
    )
    commands = (
        ("inspect", "loans.veil"),
        ("inspect", "loans.veil", "--json"),
        EXPLAIN,
        (*EXPLAIN, "--json"),
        ("schema", "draft", "rows.csv", "--label", "loan", "--exclude", "note"),
        (*RELEASE, "--dry-run"),
        ("ledger", "show", "ledger.db"),
        ("ledger", "show", "ledger.db", "--json"),
        ("--help",),
        ("--version",),
        ("explain", "--help"),
    )
    return "stdout", list(dice.choice(commands))


AREAS: dict[str, Callable[[Path, Random], Planned]] = {
    "veil": _veil,
    "model": _model,
    "schema": _schema,
    "table": _table,
    "rules": _rules,
    "ledger": _ledger,
    "arguments": _arguments,
    "table-2": _table,
    "veil-2": _veil,
    "arguments-2": _arguments,
    "rules-2": _rules,
    "output": _output,
    "model-2": _other_model,
    "key": _key,
}


def make_case(number: int, seed: int, world: Path, folder: Path) -> Case:
    """Case `number` with its files in `folder`, which must not exist."""
    shutil.copytree(world, folder)
    dice = Random(f"{seed} {number}")
    area = list(AREAS)[number % len(AREAS)]
    kind, arguments = AREAS[area](folder, dice)
    case = Case(number, area.split("-")[0], kind, arguments)
    if area == "output":
        case.stdout = dice.choice(("ascii", "closed", "full"))
        case.kind = case.stdout
    return case
