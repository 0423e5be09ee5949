"""Reads fields of a certificate: the subject's name, and the purposes of its key. The name has the format of Java's
X500Principal.getName() (RFC 2253):

    CN=anna,OU=shop,O=Example\\, Inc.,C=CZ    the most specific part first

The short names of attributes are CN, C, L, ST, O, OU, STREET, DC, UID (RFC 2253). Other attributes, and values that
are not text, are written as `#` and the value's DER in hexadecimal. Characters with a special meaning have a backslash
before them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

_SHORT: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
#: DER's tags of text types, with their encodings.
_TEXTS: Final = {0x0C: "utf-8", 0x12: "ascii", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "latin-1",
                 0x1C: "utf-32-be", 0x1E: "utf-16-be"}  # fmt: skip
_ESCAPED: Final = frozenset(',=+<>#;"\\')
#: The DER tags of a certificate's version number, which certificates of version 1 do not have, and of its extensions.
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_EXTENDED_KEY_USAGE: Final = "2.5.29.37"
#: Purposes in the extended key usage (RFC 5280): the server's side of TLS, and every purpose.
SERVER_AUTH: Final = "1.3.6.1.5.5.7.3.1"
ANY_PURPOSE: Final = "2.5.29.37.0"


class DerError(Exception):
    """Raised when bytes are not the DER of a certificate, or of another expected value."""


class Element(NamedTuple):
    """One element of DER: its tag, its content, and all bytes of the element."""

    tag: int
    content: bytes
    whole: bytes


def elements(data: bytes) -> Iterator[Element]:
    """Yields the DER elements that follow one another in `data`."""
    position = 0
    while position < len(data):
        begins = position
        tag, length = data[position], data[position + 1] if position + 1 < len(data) else 0x80
        position += 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4:
                raise DerError("a length that is not DER")
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        if position + length > len(data):
            raise DerError("an element that ends after its data")
        yield Element(tag, data[position : position + length], data[begins : position + length])
        position += length


def subject_name(certificate: bytes) -> str:
    """Returns the subject's name of a certificate in DER. Raises DerError if the bytes are not a certificate."""
    # The fields are: serial number, signature, issuer, validity, subject.
    subject = _fields(certificate)[4]
    parts = [
        "+".join(_attribute(item.content) for item in elements(part.content)) for part in elements(subject.content)
    ]
    return ",".join(reversed(parts))


def purposes(certificate: bytes) -> frozenset[str] | None:
    """Returns the object identifiers in the extended key usage of a certificate in DER, such as `SERVER_AUTH`. Returns
    None if the certificate is for every purpose. Raises DerError if the bytes are not a certificate."""
    for field in _fields(certificate):
        if field.tag != _EXTENSIONS:
            continue
        for extension in elements(next(elements(field.content)).content):
            parts = list(elements(extension.content))
            if object_id(parts[0].content) == _EXTENDED_KEY_USAGE:
                (usages,) = elements(parts[-1].content)
                return frozenset(object_id(item.content) for item in elements(usages.content))
    return None


def _fields(certificate: bytes) -> list[Element]:
    """Returns the fields of a certificate without the version number. The first five are always there."""
    try:
        (outer,) = elements(certificate)
        fields = list(elements(next(elements(outer.content)).content))
        if fields[0].tag == _VERSION:
            del fields[0]
    except (StopIteration, IndexError, ValueError) as error:
        raise DerError("not a certificate") from error
    if len(fields) < 5:
        raise DerError("not a certificate")
    return fields


def _attribute(data: bytes) -> str:
    try:
        name, value = elements(data)
    except ValueError as error:
        raise DerError("an attribute that is not a pair") from error
    oid = object_id(name.content)
    short, encoding = _SHORT.get(oid), _TEXTS.get(value.tag)
    if short is None or encoding is None:
        return f"{short or oid}=#{value.whole.hex()}"
    try:
        return f"{short}={_escaped(value.content.decode(encoding))}"
    except UnicodeDecodeError as error:
        raise DerError("a text in another encoding than it says") from error


def object_id(data: bytes) -> str:
    """Returns an object identifier as numbers with dots, such as 2.5.4.3."""
    numbers, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise DerError("an empty object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    escaped = "".join("\\00" if one == "\0" else f"\\{one}" if one in _ESCAPED else one for one in text)
    begins = len(escaped) - len(escaped.lstrip(" "))
    ends = len(escaped.rstrip(" "))
    if begins == len(escaped):
        return "\\ " * begins
    return "\\ " * begins + escaped[begins:ends] + "\\ " * (len(escaped) - ends)
