r"""Java's .properties files: the format of server.properties, producer.properties and `meta.properties`.

    line     = blanks ( comment | entry )? end         comment: begins with # or !
    entry    = key blanks? ( = | : | blank ) blanks? value
    a line that ends with an odd number of backslashes continues on the next line, whose leading blanks are dropped
    escapes  = \t \n \r \f \uXXXX, and a backslash before any other character is that character

If a key occurs twice, its last value counts, as in Java. Bytes are read as UTF-8, in which most people write such
files. Bytes that are not valid UTF-8 are read as ISO-8859-1, the encoding that Java defines for them. A file that is
written here has escapes for everything that is not printable ASCII, so that it reads the same in both encodings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


class PropertiesError(ValueError):
    """Raised for text that is not in the .properties format. The message has the number of the line."""


def parse_properties(content: bytes | str) -> dict[str, str]:
    """Returns keys and values in the order of the file. Raises PropertiesError for an incomplete \\uXXXX."""
    text = content if isinstance(content, str) else _decode(content)
    entries: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        name = _unescape(key, number)
        entries.pop(name, None)
        entries[name] = _unescape(value, number)
    return entries


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def format_properties(entries: Mapping[str, str], comments: tuple[str, ...] = ()) -> str:
    """Returns the text of a .properties file with these entries, one on each line, below lines of comments."""
    lines = ["#" + comment.replace("\r", " ").replace("\n", " ") for comment in comments]
    lines += [f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}" for key, value in entries.items()]
    return "".join(line + "\n" for line in lines)


def _logical_lines(content: str) -> Iterator[tuple[int, str]]:
    """Yields each entry's text with the number of its first line. Comments and blank lines are left out, and continued
    lines are joined."""
    pending: list[str] | None = None
    first = 0
    lines = content.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, raw in enumerate(lines, start=1):
        line = raw.lstrip(_BLANKS)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            pending, first = [], number
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending.append(line[:-1] if goes_on else line)
        if not goes_on:
            yield first, "".join(pending)
            pending = None
        elif not any(pending):
            pending = None  # a lone backslash: no entry has begun, so the next line may still be a comment
    if pending is not None:
        yield first, "".join(pending)


def _split(line: str) -> tuple[str, str]:
    index = 0
    while index < len(line) and line[index] not in "=: \t\f":
        index += 2 if line[index] == "\\" else 1
    key = line[:index]
    rest = line[index:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    index = 0
    while index < len(text):
        char = text[index]
        if char != "\\":
            parts.append(char)
            index += 1
            continue
        following = text[index + 1 : index + 2]
        index += 2
        if following == "u":
            digits = text[index : index + 4]
            if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise PropertiesError(
                    f"Line {line} holds \\u without four hexadecimal digits after it; write \\\\u for a backslash "
                    f"and a u."
                )
            parts.append(chr(int(digits, 16)))
            index += 4
        else:
            parts.append(_ESCAPES.get(following, following))
    joined = "".join(parts)
    # Two \uXXXX may be the two halves of one character (a UTF-16 surrogate pair).
    return (
        joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if any("\ud800" <= char <= "\udfff" for char in joined)
        else joined
    )


def _escape(text: str, *, is_key: bool) -> str:
    parts: list[str] = []
    for index, char in enumerate(text):
        if char in _WRITTEN:
            parts.append(_WRITTEN[char])
        elif char == " " and (is_key or index == 0):
            parts.append("\\ ")
        elif is_key and char in "=:#!":
            parts.append("\\" + char)
        elif " " <= char <= "~":
            parts.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            parts += [f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2)]
    return "".join(parts)
