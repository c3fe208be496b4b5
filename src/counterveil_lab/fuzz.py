"""`counterveil-lab fuzz`: damaged files and odd arguments against the real commands.

A small project (schema, table, veil, model, ledger, rules) is made once. Case n changes one of its
files, or the arguments, by random numbers that depend on the seed and on n alone, and runs a
command in a child process of its own. A case fails where the command does one of the following:

- it shows a traceback, or ends with a code that `docs/errors.md` does not give it (3 is a fault);
- it works for more than LIMIT seconds, or waits for something for as long (a process that only has
  to share the machine with others is not waiting);
- it takes more than MEMORY more than the process before it;
- it writes more than MOST_WORDS on standard error, or a private value of the table;
- it changes an input, or leaves an output that is not whole, or any other file.

Networks learn from fewer samples here than usual; all else is as in the product.
"""

from __future__ import annotations

import faulthandler
import hashlib
import importlib
import io
import json
import os
import resource
import shutil
import signal
import stat
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from counterveil_lab import fuzz_mutations as mutations
from counterveil_lab.results import Row

LIMIT = 10  # seconds that a case may work, or wait
MEMORY = 1 << 30  # bytes that a case may take
ROOM = 2 << 30  # bytes of addresses, after which nothing more is given
MOST_WORDS = 4000  # bytes on standard error
CLOSED_PIPE = 141
EXPLAIN = (
    *("explain", "--veil", "loans.veil", "--model", "model.pt2", "--queries", "queries.csv"),
    *("--warm-steps", "1"),
)
RELEASE = ("release", "--data", "rows.csv", "--schema", "schema.json", "--epsilon", "1")
NEW_VEIL = ("--epochs", "1", "--out", "new.veil")
LEDGER = ("--ledger", "ledger.db", "--dataset", "loans")
SURROGATE = ("explain", "--veil", "loans.veil", "--queries", "queries.csv", "--guidance")
RULES: dict[str, Any] = {
    "immutable": ["member"],
    "direction": {"age": "increase", "income": "any"},
    "allowed": {"income": [0, 9], "housing": ["rent", "own"]},
    "max_changes": 3,
    "costs": {"age": 2.0, "income": 0.5},
}


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


# --- The small project ---


def make_world(folder: Path) -> None:
    """Write the files that the cases change. They are the same each time."""
    import pandas as pd
    import torch

    from counterveil.build import Training
    from counterveil.curator import Curator
    from counterveil.encoding import Encoding
    from counterveil.models import save_exported
    from counterveil.privacy import Budget
    from counterveil.privacy.ledger import Ledger, Subject
    from counterveil.schema import Binary, Categorical, Label, Link, Numeric, Schema
    from counterveil.signature import SigningKey

    schema = Schema(
        name="loans",
        label=Label(name="loan", classes=("refused", "granted")),
        features=(
            Numeric(name="age", lower=18, upper=100, integer=True, direction="increase"),
            Numeric(name="income", lower=0, upper=10, missing=True),
            Categorical(name="housing", categories=("rent", "own", "free"), missing=True),
            Categorical(name="region", categories=(1, 2, 3)),
            Binary(name="zone", values=("inner", "outer")),
            Binary(name="member", values=("no", "yes")),
        ),
        links=(Link(source="region", derived="zone", values={1: "inner", 2: "outer", 3: "outer"}),),
    )
    count, dice = 40, Random(0)
    region = [dice.randint(1, 3) for _ in range(count)]
    income = [round(dice.uniform(0, 10), 3) for _ in range(count)]
    rows = pd.DataFrame(
        {
            "age": [dice.randint(18, 100) for _ in range(count)],
            "income": income,
            "housing": [dice.choice(("rent", "own", "free")) for _ in range(count)],
            "region": region,
            "zone": ["inner" if each == 1 else "outer" for each in region],
            "member": [dice.choice(("no", "yes")) for _ in range(count)],
            "note": [mutations.CANARY] * count,
            "loan": ["granted" if each > 5 else "refused" for each in income],
        }
    )
    torch.manual_seed(0)
    model = torch.nn.Linear(schema.width, 2)
    with torch.no_grad():
        model.weight *= 0.1
        model.weight[:, 1] = torch.tensor([-4.0, 4.0])
        model.bias[:] = torch.tensor([2.0, -2.0])
    schema.save(folder / "schema.json")
    rows.to_csv(folder / "rows.csv", index=False)
    rows.to_parquet(folder / "rows.parquet", index=False)
    rows.head(3).to_csv(folder / "queries.csv", index=False)
    rows.head(3).to_parquet(folder / "queries.parquet", index=False)
    save_exported(model, schema, folder / "model.pt2")
    (folder / "rules.json").write_text(json.dumps(RULES))
    # So large an ε that the noise is 0: the veil is the same each time.
    training = Training(200, 1, 64, 5e-3, (4,), 1)
    veil = Curator(schema).release(rows, 500.0, epochs=1, training=training, progress=False)
    key = SigningKey("office", bytes(range(32)))  # not secret: the files are the same each time
    key.save(folder / "office.key")
    veil.signed(key).save(folder / "loans.veil")
    _in_child(lambda: _more_models(folder, Encoding(schema).encode(rows), rows["loan"]))
    ledger = Ledger(folder / "ledger.db")
    ledger.open_account("loans", Budget(10.0, 1e-6))
    subject = Subject("record", max_records=1, units=len(rows), columns="0" * 64)
    ledger.commit(ledger.reserve("loans", Budget(0.5), "an earlier veil", subject), "0" * 64)


def _more_models(folder: Path, points: Any, labels: Any) -> None:
    """Models of the other formats, `other` with their ending; they want the optional packages."""
    import lightgbm
    import numpy as np
    import xgboost
    from onnx import TensorProto, helper, numpy_helper
    from sklearn.linear_model import LogisticRegression
    from skops import io as skops

    granted = (labels == "granted").to_numpy().astype(int)
    skops.dump(LogisticRegression().fit(points, granted), folder / "other.skops")
    options = {"objective": "binary:logistic", "max_depth": 2, "nthread": 1}
    boosted = xgboost.train(options, xgboost.DMatrix(points, granted), 3)
    for ending in (".json", ".ubj"):
        boosted.save_model(folder / f"other{ending}")
    few = {"objective": "binary", "num_leaves": 3, "min_data_in_leaf": 2, "num_threads": 1}
    silent = {**few, "verbosity": -1, "deterministic": True}
    light = lightgbm.train(silent, lightgbm.Dataset(points, granted), 3)
    light.save_model(folder / "other.txt")
    weights = np.zeros((points.shape[1], 2), np.float32)
    weights[1] = -8, 8
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["s"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", points.shape[1]])],
        [helper.make_tensor_value_info("s", TensorProto.FLOAT, ["rows", 2])],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.array([4, -4], np.float32), "b"),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "other.onnx").write_bytes(made.SerializeToString())


def _in_child(work: Callable[[], None]) -> None:
    """Do `work` in a process of its own: threads that it starts would not survive a fork."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("the files of the fuzzed project could not be made")


@contextmanager
def learning_less() -> Iterator[None]:
    """Let networks learn from few samples; load what the commands load when they run."""
    import torch

    from counterveil.build import TRAININGS, Training
    from counterveil.search import amortise, explainer

    for room in ("audit", "cli", "curator", "models", "report", "search"):
        importlib.import_module(f"counterveil.{room}")
    torch.set_num_threads(1)
    usual = dict(TRAININGS), amortise.TRAINING_ROWS, explainer.STUDENT_ROWS
    TRAININGS.update(dict.fromkeys(TRAININGS, Training(200, 1, 64, 5e-3, (4,), 1)))
    amortise.TRAINING_ROWS = explainer.STUDENT_ROWS = 200
    try:
        yield
    finally:
        trainings, amortise.TRAINING_ROWS, explainer.STUDENT_ROWS = usual
        TRAININGS.update(trainings)


def warm_up(world: Path) -> None:
    """Explain once: what torch loads at its first use is then there for every case."""
    from counterveil import Explainer
    from counterveil.models import load_model
    from counterveil.report import explanations_page
    from counterveil.tables import read_table
    from counterveil.veil import Veil

    veil = Veil.load(world / "loans.veil")
    explainer = Explainer(veil, load_model(world / "model.pt2", veil.schema), warm_steps=1)
    queries = read_table(world / "queries.csv", veil.schema)
    explanations_page(explainer.explain(queries, k=2, iterations=2, progress=False))


# --- The cases, by area: each changes files in the folder and gives (kind, arguments) ---

Planned = tuple[str, list[str]]


def _spoil(path: Path, mutator: Callable[..., tuple[str, bytes]], dice: Random) -> str:
    kind, content = mutator(path.read_bytes(), dice)
    path.write_bytes(content)
    return kind


def _veil(folder: Path, dice: Random) -> Planned:
    mutator = dice.choice((mutations.of_bytes, mutations.of_zip, mutations.of_zip))
    kind = _spoil(folder / "loans.veil", mutator, dice)
    commands = (
        ("inspect", "loans.veil"),
        ("inspect", "loans.veil", "--json"),
        (*EXPLAIN, "--out", "out.csv"),
        (*SURROGATE, "surrogate", "--warm-steps", "1"),
    )
    return kind, list(dice.choice(commands))


def _model(folder: Path, dice: Random) -> Planned:
    mutator = dice.choice((mutations.of_bytes, mutations.of_zip, mutations.of_zip))
    kind = _spoil(folder / "model.pt2", mutator, dice)
    if dice.random() < 0.1:  # content of one kind under the name of another
        name = f"model{dice.choice(('.onnx', '.skops', '.json', '.ubj', '.txt', '.pt', '.x', ''))}"
        (folder / "model.pt2").rename(folder / name)
        return "renamed", [*EXPLAIN, "--model", name]
    return kind, [*EXPLAIN, "--out", "out.json"]


def _other_model(folder: Path, dice: Random) -> Planned:
    ending = dice.choice((".onnx", ".skops", ".json", ".ubj", ".txt"))
    mutators: dict[str, Callable[..., tuple[str, bytes]]] = {
        ".skops": mutations.of_zip,
        ".json": mutations.of_json,
    }
    usual = mutations.of_bytes
    mutator = mutators.get(ending, usual) if dice.random() < 0.7 else usual
    _spoil(folder / f"other{ending}", mutator, dice)
    named = ("--model-classes", "refused,granted", "--model-input", "encoding")
    return ending[1:], [*EXPLAIN, "--model", f"other{ending}", *named]


def _schema(folder: Path, dice: Random) -> Planned:
    mutator = dice.choice((mutations.of_bytes, mutations.of_json, mutations.of_json))
    kind = _spoil(folder / "schema.json", mutator, dice)
    return kind, [*RELEASE, *(NEW_VEIL if dice.random() < 0.2 else ("--dry-run",))]


def _table(folder: Path, dice: Random) -> Planned:
    ending, mutator = dice.choice(((".csv", mutations.of_csv), (".parquet", mutations.of_parquet)))
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
    mutator = dice.choice((mutations.of_bytes, mutations.of_json, mutations.of_json))
    kind = _spoil(folder / "rules.json", mutator, dice)
    if dice.random() < 0.2:
        content = (folder / "rules.json").read_bytes()
        (folder / "rules.json").write_bytes(b"[" + b",".join([content] * 3) + b"]")
        kind = "list"
    return kind, [*EXPLAIN, "--rules", "rules.json", "--out", "out.csv"]


def _ledger(folder: Path, dice: Random) -> Planned:
    path = folder / "ledger.db"
    kind, content = mutations.of_ledger(path.read_bytes(), folder / "scratch.db", dice)
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
    kind = _spoil(folder / name, mutations.of_bytes, dice)
    commands = (
        ("keys", "show", name),
        ("inspect", "loans.veil", "--trust", name),
        (*RELEASE, *NEW_VEIL, "--sign", name),
    )
    return kind, list(dice.choice(commands))


NUMBERS = {
    "explain": (
        *("--k", "--max-changes", "--margin", "--iterations", "--warm-steps", "--seed"),
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
                    odd = dice.choice((*mutations.NASTY_NAMES, *mutations.NASTY_NUMBERS))
                    words[dice.randrange(len(words))] = odd
                case _:
                    del words[dice.randrange(len(words)) :]
            if not words:
                break
            continue
        option = dice.choice(table[command])
        odd = {
            "number": lambda: dice.choice(mutations.NASTY_NUMBERS),
            "name": lambda: dice.choice(mutations.NASTY_NAMES),
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


# --- Running and judging ---


@dataclass
class _Running:
    case: Case
    folder: Path
    before: dict[str, str]
    pid: int
    worked: int = 0  # ticks of the processor when it was last seen working
    seen: float = 0.0  # when that was


def run_cases(
    numbers: Sequence[int],
    seed: int,
    *,
    workers: int = 2,
    keep: Path | None = None,
) -> Iterator[Case]:
    """Run the cases of these numbers, and give each when it is done.

    `keep`: a folder for the files of cases that failed; by default they are removed.
    """
    with learning_less(), tempfile.TemporaryDirectory(prefix="counterveil-fuzz-") as scratch:
        world, folders = Path(scratch) / "world", Path(scratch) / "cases"
        world.mkdir()
        folders.mkdir()
        make_world(world)
        warm_up(world)
        waiting, running = list(reversed(numbers)), list[_Running]()
        while waiting or running:
            while waiting and len(running) < workers:
                running.append(_start(waiting.pop(), seed, world, folders))
            time.sleep(0.002)
            for one in list(running):
                if _is_done(one):
                    running.remove(one)
                    if keep is not None and one.case.failures:
                        kept = keep / str(one.case.number)
                        shutil.copytree(one.folder, kept, symlinks=True, dirs_exist_ok=True)
                    shutil.rmtree(one.folder, ignore_errors=True)
                    yield one.case


def _start(number: int, seed: int, world: Path, folders: Path) -> _Running:
    folder = folders / str(number)
    case = make_case(number, seed, world, folder)
    before = _state(folder)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(case, folder)
    return _Running(case, folder, before, pid, seen=time.monotonic())


def _child(case: Case, folder: Path) -> None:
    """Run the command as the shell would, and leave without ever coming back."""
    code = 120  # as Python ends where its last words cannot be written
    try:
        stdout, stderr, memory = (_beside(folder, ending) for ending in ("out", "err", "memory"))
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory is counted from here
        pages = Path("/proc/self/statm").read_text().split()
        memory.write_text(str(int(pages[1]) * resource.getpagesize()))
        os.chdir(folder)
        os.environ |= {"XDG_CACHE_HOME": str(folder / ".cache"), "COLUMNS": "100"}
        os.environ.pop("COUNTERVEIL_DEBUG", None)
        room = int(pages[0]) * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.disable()
        _redirect(case.stdout, stdout, stderr)
        code = _command(case.arguments)
        sys.stderr.flush()
        sys.stdout.flush()
    except BaseException:
        os._exit(120)
    os._exit(code)


def _redirect(kind: str, stdout: Path, stderr: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(stderr, flags), 2)
    if kind == "closed":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open("/dev/full" if kind == "full" else stdout, flags)
    os.dup2(writer, 1)
    encoding = "ascii" if kind == "ascii" else "utf-8"
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), encoding, errors="strict")
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), encoding, "backslashreplace", None, True)
    sys.stdin = io.TextIOWrapper(io.FileIO(0), "utf-8")


def _command(arguments: Sequence[str]) -> int:
    from counterveil.cli import main

    try:
        main(arguments)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(bool(done.code))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _is_done(one: _Running) -> bool:
    case = one.case
    pid, status, used = os.wait4(one.pid, os.WNOHANG)
    hung = pid == 0 and _is_waiting(one)
    if hung:
        os.kill(one.pid, signal.SIGKILL)
        pid, status, used = os.wait4(one.pid, 0)
    if pid == 0:
        return False
    work = used.ru_utime + used.ru_stime
    errors, out, memory = (_beside(one.folder, ending) for ending in ("err", "out", "memory"))
    taken = max(0, used.ru_maxrss * 1024 - int(memory.read_text()))
    case.seconds, case.megabytes = round(work, 2), round(taken / 2**20, 1)
    case.errors = errors.read_bytes().decode("utf-8", "replace")
    case.said = out.stat().st_size if out.exists() else 0
    case.code = os.waitstatus_to_exitcode(status)
    if hung:
        case.failures.append(f"waited for {LIMIT} s")
    elif case.code < 0 and work >= LIMIT:
        case.failures.append(f"worked for {work:.0f} s")
    elif case.code not in _codes(case):
        case.failures.append(f"exit code {case.code}")
    if taken > MEMORY:
        case.failures.append(f"took {case.megabytes:.0f} MB")
    _judge_words(case)
    _judge_files(case, one.before, one.folder)
    for path in (errors, out, memory):
        path.unlink(missing_ok=True)
    return True


def _beside(folder: Path, ending: str) -> Path:
    return folder.with_name(f"{folder.name}.{ending}")


def _is_waiting(one: _Running) -> bool:
    """Whether the case and its children have neither worked nor been ready to for LIMIT seconds."""
    now, ticks, ready = time.monotonic(), 0, False
    children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
    for pid in (str(one.pid), *children):
        with suppress(OSError):  # a child that has just ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks, ready = ticks + int(fields[11]) + int(fields[12]), ready or fields[0] == "R"
    if ready or ticks != one.worked:
        one.worked, one.seen = ticks, now
    return now - one.seen > LIMIT


def _codes(case: Case) -> set[int]:
    """The codes that this command may end with."""
    if case.stdout == "closed":
        return {0, 2, CLOSED_PIPE}
    return {0, 2}


def _judge_words(case: Case) -> None:
    if "Traceback (most recent call last)" in case.errors:
        case.failures.append("traceback")
    if len(case.errors.encode()) > MOST_WORDS:
        case.failures.append(f"{len(case.errors.encode())} bytes on standard error")
    if mutations.CANARY in case.errors or mutations.CANARY_NUMBER in case.errors:
        case.failures.append("a private value on standard error")
    if case.code == 2 and not case.errors.strip() and not case.said:
        case.failures.append("exit code 2 without a word")


def _state(folder: Path) -> dict[str, str]:
    """What each file below `folder` holds, by name; links, pipes and folders are not opened."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        plain = stat.S_ISREG(mode)
        found[str(path.relative_to(folder))] = (
            hashlib.sha256(path.read_bytes()).hexdigest() if plain else str(stat.S_IFMT(mode))
        )
    return found


def _judge_files(case: Case, before: dict[str, str], folder: Path) -> None:
    after = _state(folder)
    spent = any("ledger" in word for word in case.arguments) and "show" not in case.arguments
    for name, content in before.items():
        may_change = (spent and name.endswith(".db")) or _is_output(case, folder, name)
        if after.get(name) != content and not may_change:
            case.failures.append(f"changed the input {name}")
    for name in after.keys() - before.keys():
        if name.startswith(".cache") or (folder / name).is_dir():
            continue
        if _is_output(case, folder, name) and case.code in (0, CLOSED_PIPE):
            if not _is_whole(folder / name):
                case.failures.append(f"{name} is not whole")
        elif not (spent and case.code == 0 and _is_ledger(folder / name)):
            case.failures.append(f"left the file {name[:80]!r} behind")


def _is_output(case: Case, folder: Path, name: str) -> bool:
    words, path = case.arguments, os.path.realpath(folder / name)
    named = [words[at + 1] for at, word in enumerate(words[:-1]) if word in ("--out", "--report")]
    if words[:2] == ["keys", "new"]:  # the public key stands beside the other
        named += [f"{os.path.splitext(each)[0]}.pub" for each in named]
    return any(os.path.realpath(folder / each) == path for each in named)


def _is_ledger(path: Path) -> bool:
    return path.read_bytes().startswith(b"SQLite format 3")


def _is_whole(path: Path) -> bool:
    """Whether an output is one: JSON, a zip, Parquet, a page or a table, by its name."""
    content = path.read_bytes()
    if content.startswith(b"counterveil-"):  # a key
        return content.endswith(b"\n")
    if content.startswith(b"PK"):
        return zipfile.is_zipfile(path)
    match path.suffix.lower():
        case ".json":
            try:
                json.loads(content)
            except ValueError:
                return False
        case ".parquet":
            return content[:4] == content[-4:] == b"PAR1"
        case ".html":
            return content.rstrip().endswith(b"</html>")
    return content.endswith((b"\n", b"}", b"]", b">")) or not content


def summary(cases: Sequence[Case], seed: int) -> list[Row]:
    """A row for each area and kind of damage."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.area, case.kind), []).append(case)
    return [
        {
            "area": area,
            "mutation": kind,
            "seed": seed,
            "first_case": min(case.number for case in group),
            "last_case": max(case.number for case in group),
            "cases": len(group),
            "refused": sum(case.code == 2 for case in group),
            "failures": sum(bool(case.failures) for case in group),
            "worst_seconds": max(case.seconds for case in group),
            "peak_mb": max(case.megabytes for case in group),
        }
        for (area, kind), group in sorted(groups.items())
    ]
