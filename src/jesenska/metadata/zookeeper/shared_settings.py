"""Rules that the settings of ZooKeeper's clients and of its servers share: formats of stores, TLS versions, and the
module of logins."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jesenska.base.errors import InvalidConfigError

#: ZooKeeper's login module for DIGEST-MD5, in JAAS files.
DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
_ENDINGS: Final = {".jks": "JKS", ".pem": "PEM", ".p12": "PKCS12"}
_PROTOCOLS: Final = {"TLS": ("TLSv1.2", "TLSv1.3")}


def store_type(setting: str, given: str | None, location: str | None) -> str:
    """Returns the format of a key store or trust store: the given format or, as in ZooKeeper, the format that the
    ending of the file's name stands for. `setting` is the name of the setting with the format. Raises
    InvalidConfigError if the ending is not known."""
    if given is not None:
        return given
    if location is None:
        return "JKS"
    found = _ENDINGS.get(Path(location).suffix)
    if found is None:
        raise InvalidConfigError(
            f"The format of {location} is not known by its name: set {setting} to JKS, PEM or PKCS12."
        )
    return found


def enabled_protocols(given: tuple[str, ...], protocol: str | None) -> tuple[str, ...]:
    """Returns the enabled versions of TLS: the given list or, if it is empty, those of the setting for one protocol,
    by default TLSv1.2."""
    protocol = protocol or "TLSv1.2"
    return given or _PROTOCOLS.get(protocol, (protocol,))
