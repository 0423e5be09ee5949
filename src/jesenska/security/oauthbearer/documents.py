"""Reads the documents that OAUTHBEARER needs (key sets and tokens) from a file (`file:`) or from a server (`https:`,
`http:`).

Reading from a server blocks, so it must run on another thread than the event loop. The size of a document and the time
of a read are limited."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from jesenska.base.errors import InvalidConfigError

MAX_BYTES: Final = 1_000_000


class DocumentError(Exception):
    """Raised when a document cannot be read. The message is the cause; it contains no secret."""


class Address(NamedTuple):
    """The address of a document: a file's path, or a URL."""

    path: Path | None
    url: str

    def __str__(self) -> str:
        return self.url


def parse_address(name: str, url: str) -> Address:
    """Returns the address in the setting `name`. Raises InvalidConfigError if `url` is not an address."""
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path:
        return Address(Path(unquote(parts.path)), url)
    if parts.scheme in ("http", "https") and parts.netloc:
        return Address(None, url)
    raise InvalidConfigError(f"{name}={url} is not an address: write it as https://HOST/PATH or file:///PATH.")


def read(
    address: Address,
    context: ssl.SSLContext | None = None,
    *,
    timeout_seconds: float = 10.0,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> bytes:
    """Returns a document. Raises DocumentError if the document cannot be read. With `body` the request is a POST.
    `context` is the TLS context; None means that the system's certificate authorities are trusted."""
    if address.path is not None:
        try:
            with address.path.open("rb") as file:
                return _limited(file.read(MAX_BYTES + 1))
        except OSError as error:
            raise DocumentError(f"{address.path} cannot be read: {error.strerror}") from error
    # The scheme is http or https, because `parse_address` accepts no other scheme of a URL.
    request = urllib.request.Request(  # noqa: S310
        address.url, data=body, headers={"Accept": "application/json", **(headers or {})}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds, context=context) as answer:  # noqa: S310
            return _limited(answer.read(MAX_BYTES + 1))
    except urllib.error.HTTPError as error:
        with error:
            raise DocumentError(f"{address.url} answers {error.code} {error.reason}") from error
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DocumentError(f"{address.url} cannot be reached: {reason}") from error


def _limited(document: bytes) -> bytes:
    if len(document) > MAX_BYTES:
        raise DocumentError(f"the document is larger than {MAX_BYTES} bytes")
    return document


class Credentials(NamedTuple):
    """A client's id and secret at an identity provider, and the scope that the client requests."""

    client_id: str
    client_secret: str
    scope: str | None = None
    #: True if id and secret are URL-encoded in the header Authorization (RFC 6749, 2.3.1).
    are_encoded: bool = False

    def __repr__(self) -> str:
        return f"Credentials({self.client_id!r})"


def ask_for_token(
    address: Address, credentials: Credentials, context: ssl.SSLContext | None, timeout_seconds: float
) -> str:
    """Returns a token from an identity provider, by the grant client_credentials (RFC 6749, 4.4). Raises DocumentError
    if the provider returns no token."""
    fields = {"grant_type": "client_credentials"} | ({"scope": credentials.scope} if credentials.scope else {})
    names = [credentials.client_id, credentials.client_secret]
    pair = ":".join(quote(name, safe="") if credentials.are_encoded else name for name in names)
    document = read(
        address,
        context,
        timeout_seconds=timeout_seconds,
        body=urlencode(fields).encode(),
        headers={
            "Authorization": f"Basic {b64encode(pair.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    try:
        token = json.loads(document)["access_token"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DocumentError(f"{address.url} answers without an access_token") from error
    if not isinstance(token, str) or not token.strip():
        raise DocumentError(f"{address.url} answers with an empty access_token")
    return token.strip()
