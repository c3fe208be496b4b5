"""What an ONNX file claims, read from its bytes before onnxruntime opens it.

An ONNX file is a protobuf message: fields with a number and a kind, some of them messages again.
Only the fields that lead to tensors are followed.
"""

import math
from collections.abc import Iterator

from counterveil.errors import ModelError

# For each message: which of its fields are messages to look into.
FIELDS = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {
        **dict.fromkeys((5, 10), "tensor"),
        **dict.fromkeys((6, 11), "graph"),
        **dict.fromkeys((22, 23), "sparse tensor"),
    },
}
DIMS, EXTERNAL_DATA, DATA_LOCATION = 1, 13, 14  # fields of a tensor
MOST_DEPTH = 40  # of messages within messages
MOST_A_BYTE = 4  # numbers of a tensor that one byte of the file can hold
WHOLE, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5  # protobuf's kinds of fields


def check_onnx(content: bytes) -> None:
    """A ModelError where `content` claims more than it holds, or keeps weights elsewhere.

    Content that is no protobuf message at all is a ValueError.
    """
    if content[4:8] == b"ORTM":  # onnxruntime would take its own format as well
        raise ValueError("not the format of ONNX")
    _check(memoryview(content), "model", 0)


def _check(message: memoryview, kind: str, depth: int) -> None:
    if depth > MOST_DEPTH:
        raise ModelError(f"the ONNX model nests graphs more than {MOST_DEPTH} deep")
    if kind == "sparse tensor":
        raise ModelError("the ONNX model has sparse weights; export it with dense ones")
    if kind == "tensor":
        _check_tensor(message)
        return
    inner = FIELDS[kind]
    for number, value in _fields(message):
        if number in inner and isinstance(value, memoryview):
            _check(value, inner[number], depth + 1)


def _check_tensor(message: memoryview) -> None:
    sizes: list[int] = []
    for number, value in _fields(message):
        if number == EXTERNAL_DATA or (number == DATA_LOCATION and value != 0):
            raise ModelError(
                "the ONNX model keeps weights in other files, which are not opened; export it as "
                "one file (torch.onnx.export: external_data=False)"
            )
        if number == DIMS:
            sizes += [value] if isinstance(value, int) else _whole_numbers(value)
    if math.prod(sizes) > MOST_A_BYTE * len(message):
        raise ModelError(
            f"the ONNX model claims a tensor of {math.prod(sizes)} numbers and holds "
            f"{len(message)} bytes for it; export it again"
        )


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The number of each field, with its value: a whole number, or the bytes of all else."""
    place = 0
    while place < len(message):
        key, place = _whole_number(message, place)
        number, kind = key >> 3, key & 7
        if kind == WHOLE:
            value, place = _whole_number(message, place)
            yield number, value
            continue
        if kind == LENGTH:
            length, place = _whole_number(message, place)
        elif kind in {EIGHT_BYTES, FOUR_BYTES}:
            length = 8 if kind == EIGHT_BYTES else 4
        else:
            raise ValueError("no field of protobuf")
        if length > len(message) - place:
            raise ValueError("a field goes on after the end")
        yield number, message[place : place + length]
        place += length


def _whole_numbers(message: memoryview) -> list[int]:
    numbers, place = [], 0
    while place < len(message):
        number, place = _whole_number(message, place)
        numbers.append(number)
    return numbers


def _whole_number(message: memoryview, place: int) -> tuple[int, int]:
    """The number that starts at `place`, seven bits a byte, and the place after it."""
    number = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            raise ValueError("a number goes on after the end")
        byte = message[place]
        number |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return number, place
    raise ValueError("a number is too long")
