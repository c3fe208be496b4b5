"""What a text of a schema or statement may hold. Such texts are printed, and stored as UTF-8."""

import unicodedata

LONGEST = 10_000  # characters of a text
TURNS = {chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}  # of reading
BREAKS = {"Cc", "Zl", "Zp"}  # control characters, and the separators of lines and paragraphs


def check_text(text: str, *, one_line: bool = False, longest: int = LONGEST) -> None:
    """A ValueError unless `text` can be stored and printed.

    It has at most `longest` characters and neither half of a surrogate pair nor a control character
    other than line feed and tab; with `one_line` not these either.
    """
    if len(text) > longest:
        raise ValueError(f"a text has more than {longest} characters; shorten it")
    for letter in "" if text.isascii() and text.isprintable() else text:
        kind = unicodedata.category(letter)
        if kind == "Cs":
            raise ValueError("a text holds half of a surrogate pair; write it as Unicode")
        if (kind in BREAKS and (one_line or letter not in "\n\t")) or letter in TURNS:
            raise ValueError(f"a text holds the control character U+{ord(letter):04X}; remove it")
