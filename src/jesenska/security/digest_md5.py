"""The SASL mechanism DIGEST-MD5 (RFC 2831), with the parameters of ZooKeeper's clients and servers: realm and host
`zk-sasl-md5`, service `zookeeper`, authentication only (no security layer).

    server -> client    realm, nonce                                   the challenge
    client -> server    user, both nonces, H(password, nonces)         the password itself is not sent
    server -> client    rspauth                                        the server's proof that it knows the password

A nonce of the server is used for one exchange only, so a recorded exchange cannot be repeated. MD5 protects weak
passwords badly against somebody who records an exchange: use TLS on networks that others can read."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

from jesenska.security.sasl import SaslError

MECHANISM: Final = "DIGEST-MD5"
SERVICE: Final = "zookeeper"
REALM: Final = "zk-sasl-md5"
#: The number of random bytes in a nonce, before they are written in hexadecimal.
NONCE_BYTES: Final = 24
#: The longest message that is read, in bytes. RFC 2831 limits challenges to 2047 bytes and responses to 4095.
MESSAGE_MAX_BYTES: Final = 4096
_URI: Final = f"{SERVICE}/{REALM}"
_NONCE_COUNT: Final = "00000001"
_PART = re.compile(r'[\s,]*([A-Za-z0-9-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))\s*(?=,|$)', re.S)


class DigestMd5Client:
    """The client's side of one exchange: `step` is called with each message of the server (`SaslClient`)."""

    def __init__(self, user: str, password: str, nonce: str) -> None:
        self._user, self._password, self._nonce = user, password, nonce
        self._proof = ""  # the proof that the server must send, once the response is made

    def __repr__(self) -> str:
        return f"DigestMd5Client({self._user!r})"

    def step(self, challenge: bytes | None) -> bytes | None:
        """Returns the client's next message, or None when the server has proved that it knows the password. Raises
        SaslError if the server cannot be trusted."""
        if challenge is None:
            return b""
        if not self._proof:
            return self._response(challenge)
        said = _parts(challenge)
        if not hmac.compare_digest(said.get("rspauth", "").encode(), self._proof.encode()):
            raise SaslError("the server does not know the password")
        return None

    def _response(self, challenge: bytes) -> bytes:
        said = _parts(challenge)
        if said.get("algorithm") != "md5-sess" or "auth" not in said.get("qop", "auth").split(","):
            raise SaslError("the server's challenge is not one of DIGEST-MD5")
        nonce, realm = said.get("nonce", ""), said.get("realm", "")
        if not nonce:
            raise SaslError("the server's challenge has no nonce")
        secret = _secret(self._user, realm, self._password)
        response, self._proof = (
            _digest(secret, nonce, self._nonce, None, method, _URI) for method in ("AUTHENTICATE", "")
        )
        return (
            f'charset=utf-8,username="{_quoted(self._user)}",realm="{_quoted(realm)}",nonce="{_quoted(nonce)}",'
            f'nc={_NONCE_COUNT},cnonce="{self._nonce}",digest-uri="{_URI}",maxbuf=65536,response={response},qop=auth'
        ).encode()


class DigestMd5Server:
    """The server's side of one exchange: `step` is called with each message of the client. `user` is the user's name
    after a successful exchange, and None before."""

    def __init__(self, passwords: Mapping[str, str], nonce: str, unknown: str) -> None:
        """`unknown` is a random text, which serves as the password of unknown users: so their answers take the same
        time, and are the same, as those for a wrong password."""
        self._passwords, self._nonce, self._unknown = passwords, nonce, unknown
        self._is_challenged = False
        self.user: str | None = None

    def step(self, message: bytes) -> bytes:
        """Returns the server's next message. Raises SaslError if the login fails; its text says the reason, for the
        server's log only."""
        if not self._is_challenged:
            self._is_challenged = True
            if message:
                raise SaslError("the first message of DIGEST-MD5 is empty")
            return f'realm="{REALM}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'.encode()
        if self.user is not None:
            raise SaslError("the exchange is over")
        said = _parts(message)
        user, client_nonce = said.get("username", ""), said.get("cnonce", "")
        if said.get("nonce") != self._nonce or said.get("nc") != _NONCE_COUNT or not client_nonce:
            raise SaslError("the response belongs to another challenge")
        if said.get("realm", "") != REALM or said.get("digest-uri") != _URI or said.get("qop", "auth") != "auth":
            raise SaslError("the response is for another realm, service or quality of protection")
        password = self._passwords.get(user)
        secret = _secret(user, REALM, self._unknown if password is None else password)
        authzid = said.get("authzid")
        expected = _digest(secret, self._nonce, client_nonce, authzid, "AUTHENTICATE", _URI)
        is_right = hmac.compare_digest(said.get("response", "").encode(), expected.encode())
        self._nonce = ""  # a nonce is good for one attempt
        if not is_right or password is None:
            raise SaslError(f"unknown user or wrong password ({user[:100]!r})")
        self.user = user
        return f"rspauth={_digest(secret, said['nonce'], client_nonce, authzid, '', _URI)}".encode()


def _parts(message: bytes) -> dict[str, str]:
    """Returns the name=value parts of a message. Raises SaslError if the message is malformed or has a part twice."""
    if len(message) > MESSAGE_MAX_BYTES:
        raise SaslError("the message is too long")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise SaslError("the message is not UTF-8") from None
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part[1] in found:
            raise SaslError("the message is not a list of different name=value")
        found[part[1]] = part[3] if part[2] is None else re.sub(r"\\(.)", r"\1", part[2], flags=re.S)
        position = part.end()
    return found


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _secret(user: str, realm: str, password: str) -> bytes:
    """Returns the hash of user, realm and password. Texts that fit into ISO 8859-1 are hashed in it, as RFC 2831
    requires."""
    return _md5(b":".join(_encoded(text) for text in (user, realm, password)))


def _encoded(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _digest(secret: bytes, nonce: str, client_nonce: str, authzid: str | None, method: str, uri: str) -> str:
    """Returns the response of RFC 2831, 2.1.2.1. `method` is AUTHENTICATE in the client's message, and empty in the
    server's."""
    first = b":".join([secret, nonce.encode(), client_nonce.encode(), *([] if authzid is None else [authzid.encode()])])
    second = f"{method}:{uri}".encode()
    hashed = f"{_md5(first).hex()}:{nonce}:{_NONCE_COUNT}:{client_nonce}:auth:{_md5(second).hex()}"
    return _md5(hashed.encode()).hex()
