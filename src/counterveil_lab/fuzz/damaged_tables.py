"""Damage for `counterveil-lab fuzz`: CSV and Parquet files, and ledgers."""

import io
import sqlite3
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from counterveil_lab.fuzz.damage import CANARY, CANARY_NUMBER, LONG, NASTY_NAMES, of_bytes

NASTY_CELLS = (
    *("", " ", "NA", "nan", "inf", "-inf", "1e308", "1e400", "-0", "0x10", "1_000", "1,5", "١٢"),
    *(
        "True",
        "=1+1",
        "@x",
        "+1",
        "-1",
        "\x00",
        "\x1b[31m",
        "a\rb",
        '"',
        '""',
        "'",
        "\ufeff",
        "é€😀",
    ),
    *(str(10**30), str(2**63), "9007199254740993", CANARY, CANARY_NUMBER, "z" * 100_000),
)


def of_csv(content: bytes, dice: Random) -> tuple[str, bytes]:
    """A CSV file with odd cells, lines, columns or encoding; or with damaged bytes."""
    kind = dice.choice(("bytes", "cells", "cells", "cells", "lines", "columns", "encoding"))
    if kind == "bytes":
        return kind, of_bytes(content, dice)[1]
    lines = [line.split(",") for line in content.decode().splitlines()]
    end, encoding = "\n", "utf-8"
    match kind:
        case "cells":
            for _ in range(dice.choice((1, 1, 3, 20))):
                line = dice.choice(lines[1:])
                line[dice.randrange(len(line))] = _quoted(dice.choice(NASTY_CELLS), dice)
        case "lines":
            lines, end = _with_odd_lines(lines, dice)
        case "columns":
            lines = _with_odd_columns(lines, dice)
        case _:
            encoding = dice.choice(("utf-8-sig", "utf-16", "utf-32", "latin-1", "cp037"))
    text = "".join(",".join(line) + end for line in lines)
    return kind, text.encode(encoding, "replace")


def _with_odd_lines(lines: list[list[str]], dice: Random) -> tuple[list[list[str]], str]:
    """The lines changed, and what ends them."""
    end = "\n"
    kinds = ("headerless", "ragged", "short", "empty", "header", "repeat", "end", "separator")
    match dice.choice(kinds):
        case "headerless":
            del lines[0]
        case "ragged":
            dice.choice(lines).append(CANARY)
        case "short":
            dice.choice(lines).pop()
        case "empty":
            lines.insert(dice.randrange(len(lines)), [])
        case "header":
            lines = lines[:1]
        case "repeat":
            lines.insert(dice.randrange(len(lines)), lines[0])
        case "end":
            end = dice.choice(("\r", "\r\n", "\n\n", "\u2028"))
        case _:
            lines = [[dice.choice((";", "\t", "|")).join(line)] for line in lines]
    return lines, end


def _with_odd_columns(lines: list[list[str]], dice: Random) -> list[list[str]]:
    at = dice.randrange(len(lines[0]))
    match dice.choice(("rename", "drop", "double", "many", "long", "swap")):
        case "rename":
            lines[0][at] = _quoted(dice.choice((*NASTY_CELLS[:24], *NASTY_NAMES[:9])), dice)
        case "drop":
            lines = [[*line[:at], *line[at + 1 :]] for line in lines]
        case "double":
            lines = [[*line, line[at]] for line in lines]
        case "many":
            count = dice.choice((300, 20_000, 100_000))
            names, ones = [f"c{n}" for n in range(count)], ["1"] * count
            lines = [[*line, *(ones if row else names)] for row, line in enumerate(lines[:4])]
        case "long":
            lines[0][at] = "w" * LONG
        case _:
            lines[0][at], lines[0][0] = lines[0][0], lines[0][at]
    return lines


def _quoted(cell: str, dice: Random) -> str:
    return '"' + cell.replace('"', '""') + '"' if dice.random() < 0.6 else cell.replace("\x00", "")


def of_parquet(content: bytes, dice: Random) -> tuple[str, bytes]:
    """A Parquet file with columns of other types, or with damaged bytes."""
    if dice.random() < 0.35:
        return "bytes", of_bytes(content, dice)[1]
    table = pq.read_table(io.BytesIO(content))
    for _ in range(dice.choice((1, 1, 2))):
        at = dice.randrange(table.num_columns)
        name = table.column_names[at]
        made = dice.choice(COLUMNS)(len(table), table.column(at))
        match dice.choice(("set", "set", "set", "drop", "rename", "double")):
            case "set":
                table = table.set_column(at, name, made)
            case "drop" if table.num_columns > 1:
                table = table.remove_column(at)
            case "rename":
                odd = [each for each in NASTY_NAMES if "\udc80" not in each]
                table = table.set_column(at, dice.choice(odd), made)
            case _:
                table = table.append_column(name, made)
    if dice.random() < 0.05:
        table = table.slice(0, 0)
    file = io.BytesIO()
    pq.write_table(table, file)
    return "columns", file.getvalue()


def _cast(kind: Any) -> Callable[[int, Any], Any]:
    def column(count: int, old: Any) -> Any:
        try:
            return old.cast(kind)
        except pa.ArrowException:
            return pa.nulls(count, kind)

    return column


def _filled(value: Any, kind: Any = None) -> Callable[[int, Any], Any]:
    return lambda count, _: pa.array([value] * count, kind)


COLUMNS: tuple[Callable[[int, Any], Any], ...] = (
    _filled([("a", CANARY)], pa.map_(pa.string(), pa.string())),
    _filled([1, 2], pa.list_(pa.int64())),
    _filled([CANARY], pa.list_(pa.string())),
    _filled({"a": 1, "b": CANARY}),
    _filled([{"a": [1]}]),
    _filled(CANARY),
    _filled(b"\xff\x00" + CANARY.encode(), pa.binary()),
    _filled(8675309.4142),
    _filled(float("nan")),
    _filled(float("inf")),
    _filled(1e308),
    _filled(10**18),
    _filled(True),
    _filled(0, pa.timestamp("ns")),
    _filled(-(2**35), pa.timestamp("s")),
    _filled(0, pa.timestamp("us", "UTC")),
    _filled(0, pa.date32()),
    _filled(0, pa.time64("us")),
    _filled(0, pa.duration("s")),
    _filled(1, pa.decimal128(38, 10)),
    _filled(1, pa.decimal256(76, 40)),
    _filled(1, pa.uint64()),
    _filled(2**64 - 1, pa.uint64()),
    _filled(1, pa.int8()),
    _cast(pa.string()),
    _cast(pa.large_string()),
    _cast(pa.float32()),
    lambda count, old: old.combine_chunks().dictionary_encode(),
    lambda count, old: pa.nulls(count),
    lambda count, old: pa.array([None if n % 2 else CANARY for n in range(count)]),
)


def of_ledger(content: bytes, path: Path, dice: Random) -> tuple[str, bytes]:
    """A ledger with damaged bytes, or with other things in its tables; `path` is scratch."""
    if dice.random() < 0.5:
        return "bytes", of_bytes(content, dice)[1]
    path.write_bytes(content)
    odd: tuple[Any, ...] = (
        *(None, "", "x", "NaN", "Infinity", "-1", "0", "1e999", "1e-999", "1" * 3000, "1e99999999"),
        *(-1, 0, 2**62, 1e308, b"\xff", "\x1b[31m", "n" * LONG, "2026-99-99", "9e-3", "0x1"),
    )
    statements = (
        ("UPDATE accounts SET epsilon = ?", (dice.choice(odd),)),
        ("UPDATE accounts SET delta = ?", (dice.choice(odd),)),
        ("UPDATE accounts SET opened = ?", (dice.choice(odd),)),
        ("UPDATE accounts SET dataset = ?", (dice.choice(odd),)),
        ("UPDATE spends SET epsilon = ?", (dice.choice(odd),)),
        ("UPDATE spends SET delta = ?", (dice.choice(odd),)),
        ("UPDATE spends SET time = ?", (dice.choice(odd),)),
        ("UPDATE spends SET what = ?", (dice.choice(odd),)),
        ("UPDATE spends SET digest = ?", (dice.choice(odd),)),
        ("UPDATE spends SET dataset = ?", (dice.choice(odd),)),
        ("DROP TABLE spends", ()),
        ("DROP TABLE accounts", ()),
        ("ALTER TABLE spends DROP COLUMN what", ()),
        ("DELETE FROM accounts", ()),
        (f"PRAGMA user_version = {dice.choice((0, 2, 99, -1))}", ()),
        (f"PRAGMA application_id = {dice.choice((0, 7, -1))}", ()),
        ("CREATE TRIGGER t AFTER INSERT ON spends BEGIN DELETE FROM spends; END", ()),
    )
    database = sqlite3.connect(path)
    for _ in range(dice.choice((1, 1, 2))):
        statement, values = dice.choice(statements)
        try:
            database.execute(statement, values)
        except sqlite3.Error:
            continue  # the tables refuse it by themselves
    database.commit()
    database.close()
    changed = path.read_bytes()
    path.unlink()
    return "tables", changed
