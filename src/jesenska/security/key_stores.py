"""Reads keys and certificates from the files that Kafka's ssl settings name: PEM, PKCS12 and JKS.

    PEM       private key and certificates as text, in a file or in the setting itself
    PKCS12    read by the package `cryptography` (pip install "jesenska[security]")
    JKS       Java's older format, read by this module

Java opens a PKCS12 file even if the setting says JKS, and a JKS file even if the setting says PKCS12. So the first
bytes of a file decide the format.

A JKS file begins with the magic FEEDFEED, the version (1 or 2) and the number of entries. Each entry has its kind, its
alias and its time, and then:

    kind 1    an encrypted private key (below) and its chain: the number of certificates; then for each certificate
              the type (version 2 only) and the DER
    kind 2    a trusted certificate: its type (version 2 only) and its DER
    end       after all entries: the SHA-1 of the password in UTF-16, "Mighty Aphrodite", and all bytes before

The private key is an EncryptedPrivateKeyInfo in Sun's own format: 20 bytes of salt, the encrypted key, and the SHA-1
of the password and the key. The key is encrypted by XOR with a stream of SHA-1 blocks. Each block is the SHA-1 of the
password and the previous block; the salt comes before the first block."""

from __future__ import annotations

import hashlib
import hmac
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from jesenska.base.errors import InvalidConfigError
from jesenska.security.x500 import DerError, elements

_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
#: The maximum size in bytes of an accepted store file; usual files have a few kilobytes.
_STORE_MAX_BYTES: Final = 16 * 1024 * 1024


class KeyAndChain(NamedTuple):
    """A private key and its certificates, as PEM. If the key is encrypted, `password` opens it; otherwise `password`
    is None."""

    key: str
    chain: str
    password: str | None

    def __repr__(self) -> str:
        return "KeyAndChain(…)"


def key_and_chain(kind: str, path: str, store_password: str | None, key_password: str | None) -> KeyAndChain:
    """Returns the private key and certificates of a key store file. Raises InvalidConfigError with one sentence if
    they cannot be read."""
    data = _read(path)
    if kind.upper() == "PEM":
        return pem_key_and_chain(_text_of(data, path), key_password or store_password, f"The key store {path}")
    if not data.startswith(_JKS_MAGIC):
        return _from_pkcs12(path, data, store_password)
    for entry in _jks_entries(path, data, store_password):
        if entry.key is not None:
            key = _jks_key(path, entry.key, key_password or store_password or "")
            chain = "".join(map(ssl.DER_cert_to_PEM_cert, entry.certificates))
            return KeyAndChain(_pem("PRIVATE KEY", key), chain, None)
    raise InvalidConfigError(f"The key store {path} has no private key.")


def pem_key_and_chain(text: str, password: str | None, source: str) -> KeyAndChain:
    """Returns the private key and the certificates of a PEM text. Raises InvalidConfigError, with the text's `source`
    as the subject of its sentence, if it does not have exactly one key, or has no certificate."""
    blocks = list(_pem_blocks(text))
    keys = [block for label, block in blocks if label.endswith("PRIVATE KEY")]
    chain = "".join(block for label, block in blocks if label == "CERTIFICATE")
    if len(keys) != 1 or not chain:
        certificates = "certificates" if chain else "no certificate"
        raise InvalidConfigError(
            f"{source} has {len(keys)} private keys and {certificates} in PEM: it needs one key and its certificates."
        )
    return KeyAndChain(keys[0], chain, password if "ENCRYPTED" in keys[0] else None)


def trusted_certificates(kind: str, path: str, store_password: str | None) -> str:
    """Returns the certificates of a trust store file, as PEM. Raises InvalidConfigError if the file has no certificate
    or cannot be read."""
    data = _read(path)
    if kind.upper() == "PEM":
        found = "".join(block for label, block in _pem_blocks(_text_of(data, path)) if label == "CERTIFICATE")
    elif data.startswith(_JKS_MAGIC):
        certificates = [one for entry in _jks_entries(path, data, store_password) for one in entry.certificates]
        found = "".join(map(ssl.DER_cert_to_PEM_cert, certificates))
    else:
        found = _trusted_in_pkcs12(path, data, store_password)
    if not found:
        raise InvalidConfigError(f"The trust store {path} has no certificate.")
    return found


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_STORE_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidConfigError(f"The store {path} cannot be read: {error.strerror or error}.") from error
    if len(data) > _STORE_MAX_BYTES:
        raise InvalidConfigError(f"The store {path} is larger than {_STORE_MAX_BYTES} bytes.")
    return data


def _text_of(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidConfigError(f"The store {path} is not PEM: set its type to PKCS12 or JKS.") from None


# --- PEM -------------------------------------------------------------------------------------------------------------


def _pem_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yields the label and the whole text of each PEM block."""
    lines: list[str] | None = None
    label = ""
    # In a properties file a PEM text may be in one line, with spaces in place of line ends.
    for line in _with_line_ends(text).splitlines():
        stripped = line.strip()
        if stripped.startswith("-----BEGIN ") and stripped.endswith("-----"):
            label, lines = stripped[11:-5], []
        if lines is not None:
            lines.append(stripped)
            if stripped == f"-----END {label}-----":
                yield label, "\n".join(lines) + "\n"
                lines = None


def _with_line_ends(text: str) -> str:
    made = text.replace("-----BEGIN ", "\n-----BEGIN ").replace("-----END ", "\n-----END ")
    parts = []
    for line in made.splitlines():
        if line.startswith("-----BEGIN ") and not line.rstrip().endswith("-----"):
            label, _, rest = line[11:].partition("-----")
            parts += [f"-----BEGIN {label}-----", *rest.split()]
        elif line.startswith("-----"):
            parts.append(line)
        else:
            parts += line.split() if ":" not in line else [line]
    return "\n".join(parts)


def _pem(label: str, der: bytes) -> str:
    return ssl.DER_cert_to_PEM_cert(der).replace("CERTIFICATE", label)


# --- PKCS12 ----------------------------------------------------------------------------------------------------------


def _pkcs12(path: str, data: bytes, password: str | None) -> object:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ModuleNotFoundError:
        raise InvalidConfigError(
            f'The store {path} is PKCS12, for which a package is needed: pip install "jesenska[security]", or use PEM.'
        ) from None
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        if b"-----BEGIN " in data:
            raise InvalidConfigError(
                f"The store {path} is PEM: set ssl.keystore.type=PEM for a key store, or ssl.truststore.type=PEM "
                "for a trust store."
            ) from None
        raise InvalidConfigError(
            f"The store {path} cannot be opened: it is damaged, or the password is wrong."
        ) from None


def _from_pkcs12(path: str, data: bytes, password: str | None) -> KeyAndChain:
    store = _pkcs12(path, data, password)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

    assert isinstance(store, PKCS12KeyAndCertificates)
    if store.key is None or store.cert is None:
        raise InvalidConfigError(f"The key store {path} has no private key with a certificate.")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    chain = [store.cert.certificate, *(one.certificate for one in store.additional_certs)]
    return KeyAndChain(key, "".join(one.public_bytes(Encoding.PEM).decode() for one in chain), None)


def _trusted_in_pkcs12(path: str, data: bytes, password: str | None) -> str:
    store = _pkcs12(path, data, password)
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

    assert isinstance(store, PKCS12KeyAndCertificates)
    found = [*([store.cert] if store.cert is not None else []), *store.additional_certs]
    return "".join(one.certificate.public_bytes(Encoding.PEM).decode() for one in found)


# --- JKS -------------------------------------------------------------------------------------------------------------


class _JksEntry(NamedTuple):
    key: bytes | None
    certificates: list[bytes]


class _Cursor:
    """Reads the values of a JKS file one after another, from its beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self._data):
            raise DerError("the file is too short")
        self.position += size
        return self._data[self.position - size : self.position]

    def number(self) -> int:
        value: int = struct.unpack(">I", self.take(4))[0]
        return value

    def text(self) -> str:
        return self.take(struct.unpack(">H", self.take(2))[0]).decode("utf-8", "replace")


def _jks_entries(path: str, data: bytes, password: str | None) -> list[_JksEntry]:
    try:
        cursor = _Cursor(data)
        cursor.take(4)
        version, count = cursor.number(), cursor.number()
        entries = [_jks_entry(cursor, version) for _ in range(count)]
        content, digest = data[: cursor.position], cursor.take(20)
    except (DerError, struct.error) as error:
        raise InvalidConfigError(f"The store {path} is damaged: {error}.") from error
    if password is not None:
        made = hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()  # noqa: S324
        if not hmac.compare_digest(made, digest):
            raise InvalidConfigError(f"The store {path} cannot be opened: it is damaged, or the password is wrong.")
    return entries


def _jks_entry(cursor: _Cursor, version: int) -> _JksEntry:
    kind = cursor.number()
    cursor.text()
    cursor.take(8)
    if kind == 1:
        key = cursor.take(cursor.number())
        return _JksEntry(key, [_jks_certificate(cursor, version) for _ in range(cursor.number())])
    if kind == 2:
        return _JksEntry(None, [_jks_certificate(cursor, version)])
    raise DerError("an entry of an unknown kind")


def _jks_certificate(cursor: _Cursor, version: int) -> bytes:
    if version == 2:
        cursor.text()
    return cursor.take(cursor.number())


def _jks_key(path: str, encrypted: bytes, password: str) -> bytes:
    (info,) = elements(encrypted)
    _, protected = elements(info.content)
    salt, body, digest = protected.content[:20], protected.content[20:-20], protected.content[-20:]
    secret, block, stream = password.encode("utf-16-be"), salt, b""
    while len(stream) < len(body):
        block = hashlib.sha1(secret + block).digest()  # noqa: S324
        stream += block
    key = bytes(a ^ b for a, b in zip(body, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), digest):  # noqa: S324
        raise InvalidConfigError(f"The key in {path} cannot be opened: its password is wrong (ssl.key.password).")
    return key
