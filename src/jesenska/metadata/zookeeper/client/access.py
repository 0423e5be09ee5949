"""The protection of a client's connections to the tree: TLS, and the login by SASL. `access_settings` makes it from
settings. Most clients have neither, so the modules of both are imported only if they are needed."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jesenska.security.digest_md5 import DigestMd5Client


class TreeLogin:
    """The user and the password of a client. Each connection logs in by a new exchange."""

    __slots__ = ("_password", "_secret_bytes", "user")

    def __init__(self, user: str, password: str, secret_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self.user = user
        self._password = password
        self._secret_bytes = secret_bytes

    def __repr__(self) -> str:
        return f"TreeLogin({self.user!r})"

    def exchange(self) -> DigestMd5Client:
        from jesenska.security.digest_md5 import NONCE_BYTES, DigestMd5Client

        return DigestMd5Client(self.user, self._password, self._secret_bytes(NONCE_BYTES).hex())


class TreeAccess(NamedTuple):
    """The protection of a client's connections. `has_certificate` is True if the client shows a certificate."""

    tls: ssl.SSLContext | None = None
    login: TreeLogin | None = None
    has_certificate: bool = False

    @property
    def is_identified(self) -> bool:
        """Returns True if the server gets to know the client: by a login or by a certificate."""
        return self.login is not None or self.has_certificate
