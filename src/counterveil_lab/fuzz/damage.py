"""Damage for `counterveil-lab fuzz`: bytes, JSON, zip members, numbers and names.

Every mutator takes the random numbers of its case, so that a case is the same each time.
"""

import hashlib
import io
import json
import struct
import zipfile
from random import Random
from typing import Any

CANARY = "Xq7canaryZ"  # stands in cells of the private table, and must never stand in a message
CANARY_NUMBER = "8675309.4142"
LONG = 1 << 20

# JSON texts: numbers at the edges, wrong types, odd texts.
NASTY_JSON = (
    *("0", "-0.0", "-1", "1", "2", "0.5", "1e308", "-1e308", "5e-324", "1e400", "-1e400"),
    *("NaN", "Infinity", "-Infinity", "1e15", "1e16", "9007199254740993", "2147483648"),
    *(str(2**63), str(-(2**63) - 1), str(2**64), str(10**30), str(10**400), "1" + "0" * 5000),
    *("null", "true", "false", '""', '" "', '"0"', '"1e5"', '"nan"', '"age"', '"loan"'),
    *("[]", "{}", "[[]]", "[null]", "[[1,[2,[3]]]]", '{"a":{"b":[1]}}', '{"":""}', "[1,2,3,4]"),
    *('"\\ud800"', '"\\u0000"', '"a\\u001b[31mb"', '"\\r\\n"', '"\\u202e"', '"=1+1"', '"é€😀"'),
    *('"../../x"', '"/dev/zero"', "[" * 200 + "]" * 200, "[" * 100_000 + "]" * 100_000),
    '"' + "n" * LONG + '"',
    "[" + ",".join(["0"] * 100_000) + "]",
    "{" + ",".join(f'"k{n}":0' for n in range(20_000)) + "}",
)
NASTY_NUMBERS = (
    *(
        "0",
        "-0",
        "-1",
        "1",
        "2",
        "3",
        "1.5",
        "0.75",
        "1e308",
        "-1e308",
        "5e-324",
        "1e-300",
        "1e400",
    ),
    *("nan", "inf", "-inf", "NaN", "1e10", "10000000000", str(2**31), str(2**63), str(2**64)),
    *(
        str(10**30),
        str(10**400),
        "1" + "0" * 5000,
        "",
        " ",
        "one",
        "0x10",
        "1_0",
        "１",
        "1,5",
        "--",
    ),
)
NASTY_NAMES = (
    *("", " ", "-", "--", ".", "..", "a/b", "x" * 300, "x" * 5000, "y" * 100_000, "loan", "age"),
    *(
        "agee",
        "AGE",
        "income ",
        "é€😀",
        "\u202eabc",
        "a\nb",
        "\x1b[31mred",
        "[red]x[/red]",
        "\udc80",
    ),
    *("=1+1", "%s%n", "{0}", "null", "True", "granted", "refused", "grantde", "model", "auto"),
)


def of_bytes(content: bytes, dice: Random) -> tuple[str, bytes]:
    """`content` with random damage, and the name of the damage."""
    changed = bytearray(content or b"\0")
    kind = dice.choice(
        ("flip", "truncate", "insert", "splice", "duplicate", "swap", "fill", "none")
    )
    start = dice.randrange(len(changed))
    stop = min(len(changed), start + dice.choice((1, 2, 8, 64, 512)))
    match kind:
        case "flip":
            for _ in range(dice.choice((1, 1, 2, 8, 64))):
                changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
        case "truncate":
            del changed[dice.choice((0, 1, start, len(changed) - 1)) :]
        case "insert":
            changed[start:start] = dice.randbytes(stop - start)
        case "splice":
            other = dice.randrange(len(changed))
            changed[start:stop] = changed[other : other + stop - start]
        case "duplicate":
            changed[start:start] = changed[start:stop] * dice.choice((1, 1, 16))
        case "swap":
            other = dice.randrange(len(changed))
            changed[start], changed[other] = changed[other], changed[start]
        case "fill":
            changed[start:stop] = bytes([dice.choice((0, 10, 34, 44, 127, 255))]) * (stop - start)
        case _:
            changed += b"\n"
    return kind, bytes(changed)


def of_json(content: bytes, dice: Random) -> tuple[str, bytes]:
    """JSON text with a value replaced by a nasty one, dropped, or said twice."""
    parsed = json.loads(content)
    places = list(_places(parsed))
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        holder, key = dice.choice(places)
        kind = dice.choice(("replace", "replace", "replace", "drop", "extra", "twice", "exchange"))
        inside = isinstance(holder, dict) or (isinstance(holder, list) and key < len(holder))
        if not inside or (isinstance(holder, dict) and key not in holder):
            continue  # an earlier change took it away
        match kind:
            case "replace":
                holder[key] = _Raw(dice.choice(NASTY_JSON))
            case "drop":
                del holder[key]
            case "extra" if isinstance(holder, dict):
                holder[dice.choice(NASTY_NAMES)] = _Raw(dice.choice(NASTY_JSON))
            case "twice" if isinstance(holder, dict):
                holder[_Twice(key)] = _Raw(dice.choice(NASTY_JSON))
            case "exchange":
                other, name = dice.choice(places)
                if isinstance(other, dict) and name in other:
                    holder[key] = other[name]
            case _:
                holder[key] = _Raw(dice.choice(NASTY_JSON))
    return "json", _text_of(parsed).encode("utf-8", "surrogatepass")


class _Raw(str):
    """JSON text that stands as it is."""


class _Twice(str):
    """A name that is written like another one, and is not the same key."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(("twice", str(self)))

    def __eq__(self, other: object) -> bool:
        return self is other


def _places(content: Any) -> Any:
    """Every value inside `content`, as its holder and its key."""
    keys = content.keys() if isinstance(content, dict) else range(len(content))
    for key in list(keys):
        yield content, key
        if isinstance(content[key], (dict, list)):
            yield from _places(content[key])


def _text_of(content: Any, depth: int = 0) -> str:
    if isinstance(content, _Raw):
        return str(content)
    if depth > 50:  # exchanged values may hold themselves
        return "null"
    if isinstance(content, dict):
        inside = (f"{json.dumps(str(k))}: {_text_of(v, depth + 1)}" for k, v in content.items())
        return "{" + ", ".join(inside) + "}"
    if isinstance(content, list):
        return "[" + ", ".join(_text_of(each, depth + 1) for each in content) + "]"
    return json.dumps(content)


def of_zip(content: bytes, dice: Random) -> tuple[str, bytes]:
    """A zip file with its members damaged; the digests of a veil's manifest are made anew."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    kind = dice.choice(("json", "json", "json", "tensors", "tensors", "bytes", "members"))
    texts = [n for n, (_, inside) in enumerate(members) if inside[:1] in (b"{", b"[")]
    tensors = [n for n, (name, _) in enumerate(members) if name.endswith(".safetensors")]
    if kind == "json" and texts:
        at = dice.choice(texts)
        members[at] = members[at][0], of_json(members[at][1], dice)[1]
    elif kind == "tensors" and tensors:
        at = dice.choice(tensors)
        members[at] = members[at][0], of_safetensors(members[at][1], dice)
    elif kind == "members":
        _change_members(members, dice)
    else:
        kind, at = "bytes", dice.randrange(len(members))
        members[at] = members[at][0], of_bytes(members[at][1], dice)[1]
    if dice.random() < 0.9:
        members = _with_new_digests(members)
    made = io.BytesIO()
    how = zipfile.ZIP_DEFLATED if content[8:10] != b"\0\0" else zipfile.ZIP_STORED
    with zipfile.ZipFile(made, "w", how) as archive:
        for name, inside in members:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), inside, how)
    return f"zip-{kind}", made.getvalue()


def _change_members(members: list[tuple[str, bytes]], dice: Random) -> None:
    at = dice.randrange(len(members))
    name, inside = members[at]
    match dice.choice(("drop", "rename", "empty", "big", "extra", "move", "case")):
        case "drop":
            del members[at]
        case "rename":
            odd = ("../x", "/etc/x", "a\\b", "x" * 1000, "é", "weights.pkl", name + "/")
            members[at] = dice.choice(odd), inside
        case "empty":
            members[at] = name, b""
        case "big":
            members[at] = name, inside + b" " * (200 * LONG)
        case "extra":
            members.append(("extra.json", b"{}"))
        case "move":
            members.append(members.pop(at))
        case _:
            members[at] = name.upper(), inside


def _with_new_digests(members: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The manifest of a veil with the digests that its members now have."""
    by_name = dict(members)
    try:
        manifest = json.loads(by_name["manifest.json"])
        manifest["sha256"] = {
            name: hashlib.sha256(by_name[name]).hexdigest() for name in manifest["sha256"]
        }
    except (KeyError, TypeError, ValueError, RecursionError):
        return members
    text = json.dumps(manifest).encode("utf-8", "surrogatepass")
    return [(name, text if name == "manifest.json" else inside) for name, inside in members]


def of_safetensors(content: bytes, dice: Random) -> bytes:
    """Tensors with a damaged header, or with numbers that are none."""
    size = int.from_bytes(content[:8], "little")
    header, body = content[8 : 8 + size], bytearray(content[8 + size :])
    match dice.choice(("header", "header", "length", "numbers", "cut", "body")):
        case "header":
            header = of_json(header, dice)[1]
        case "length":
            length = dice.choice((0, 1, size - 1, size + 1, 2**31, 2**63, 2**64 - 1))
            return struct.pack("<Q", length) + header + bytes(body)
        case "numbers":
            odd = dice.choice((float("nan"), float("inf"), 1e38, -1e38, 1e-45))
            for _ in range(dice.choice((1, 4, len(body) // 4))):
                if len(body) >= 4:
                    struct.pack_into("<f", body, 4 * dice.randrange(len(body) // 4), odd)
        case "cut":
            del body[dice.randrange(len(body) + 1) :]
        case _:
            body = bytearray(of_bytes(bytes(body), dice)[1])
    return struct.pack("<Q", len(header)) + header + bytes(body)
