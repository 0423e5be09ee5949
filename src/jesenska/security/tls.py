"""Makes TLS contexts from Kafka's `ssl.*` settings, for servers and for clients.

    ssl.keystore.*      the key and certificates that are shown to the peer
    ssl.truststore.*    the authorities that must have issued the peer's certificate; if not set, the system's
                        authorities
    ssl.client.auth     none, requested or required: how the certificates of clients are handled
    ssl.endpoint.identification.algorithm    https: the server's certificate must name the server's host; empty: the
                                             host is not checked

When the file of a store has changed, a new context is made (`TlsContexts`). Open connections keep the old context.

A client resumes its last session with a server (`TlsSessions`): the handshake then needs no certificates and no
signatures. A server resumes the sessions of one context only, so after a change of a store every client shows its
certificate again. The user of a resumed session is the user of the session's first handshake, because OpenSSL keeps
the client's certificate in the session's ticket, encrypted with a key of the server's context."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from jesenska.base.errors import InvalidConfigError
from jesenska.base.limits import TLS_SESSIONS_MAX
from jesenska.security.key_stores import KeyAndChain, key_and_chain, pem_key_and_chain, trusted_certificates
from jesenska.security.x500 import ANY_PURPOSE, SERVER_AUTH, DerError, purposes

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsSettings(NamedTuple):
    """The `ssl.*` settings of one listener, or of a client."""

    keystore_type: str = "JKS"
    keystore_location: str | None = None
    keystore_password: str | None = None
    keystore_key: str | None = None
    keystore_certificate_chain: str | None = None
    key_password: str | None = None
    truststore_type: str = "JKS"
    truststore_location: str | None = None
    truststore_password: str | None = None
    truststore_certificates: str | None = None
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    client_auth: str = "none"
    endpoint_identification: str = "https"

    def __repr__(self) -> str:
        return f"key store {self.keystore_location!r}, trust store {self.truststore_location!r}"


def tls_settings(get: Callable[[str], object]) -> TlsSettings:
    """Returns the TLS settings. `get` returns the value of a setting by its name, already converted to its type."""

    def text(name: str) -> str | None:
        value = get(name)
        return None if value is None else str(value)

    def texts(name: str) -> tuple[str, ...]:
        value = get(name)
        return tuple(value) if isinstance(value, list | tuple) else ()

    return TlsSettings(
        text("ssl.keystore.type") or "JKS",
        text("ssl.keystore.location"),
        text("ssl.keystore.password"),
        text("ssl.keystore.key"),
        text("ssl.keystore.certificate.chain"),
        text("ssl.key.password"),
        text("ssl.truststore.type") or "JKS",
        text("ssl.truststore.location"),
        text("ssl.truststore.password"),
        text("ssl.truststore.certificates"),
        texts("ssl.enabled.protocols") or ("TLSv1.2", "TLSv1.3"),
        texts("ssl.cipher.suites"),
        text("ssl.client.auth") or "none",
        "https" if (algorithm := text("ssl.endpoint.identification.algorithm")) is None else algorithm,
    )


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Returns the TLS context of a listener. Raises InvalidConfigError with one sentence if a store cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _configure(context, settings)
    shown = _key(settings)
    if shown is None:
        raise InvalidConfigError(
            "There is no certificate: set ssl.keystore.location, or ssl.keystore.key and "
            "ssl.keystore.certificate.chain with ssl.keystore.type=PEM."
        )
    _show(context, shown, settings)
    _refuse_client_certificate(shown, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if context.verify_mode != ssl.CERT_NONE:
        _trust(context, settings)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Returns the TLS context of a client. Raises InvalidConfigError with one sentence if a store cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _configure(context, settings)
    context.check_hostname = settings.endpoint_identification.lower() == "https"
    _trust(context, settings)
    shown = _key(settings)
    if shown is not None:
        _show(context, shown, settings)
    return context


def _configure(context: ssl.SSLContext, settings: TlsSettings) -> None:
    wanted = [_VERSIONS[name] for name in settings.enabled_protocols if name in _VERSIONS]
    if not wanted:
        raise InvalidConfigError(
            f"ssl.enabled.protocols names none of {', '.join(_VERSIONS)}; older versions of TLS are not served."
        )
    context.minimum_version, context.maximum_version = min(wanted), max(wanted)
    # Renegotiation and compression are disabled. With renegotiation a client could cause unlimited CPU use on the
    # server.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if settings.cipher_suites:
        _choose_ciphers(context, settings.cipher_suites)


def _choose_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    """Sets the cipher suites of TLS 1.2, which have Java's names in the setting. The suites of TLS 1.3 are always the
    default suites of OpenSSL."""
    older = [_openssl_name(name) for name in names if not name.startswith(("TLS_AES_", "TLS_CHACHA20_"))]
    if not older:
        if context.minimum_version == ssl.TLSVersion.TLSv1_2:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError:
        raise InvalidConfigError(f"ssl.cipher.suites has no suite that OpenSSL knows: {', '.join(names)}.") from None


def _openssl_name(name: str) -> str:
    """Returns OpenSSL's name of a cipher suite, such as ECDHE-RSA-AES256-GCM-SHA384 for
    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384."""
    made = name.removeprefix("TLS_").replace("_WITH_", "_").replace("AES_", "AES").replace("_CBC_", "_")
    # OpenSSL's names of suites with ChaCha20 have no hash.
    made = made.replace("POLY1305_SHA256", "POLY1305").replace("_", "-")
    return made.replace("RSA-AES", "AES") if made.startswith("RSA-AES") else made


def _key(settings: TlsSettings) -> KeyAndChain | None:
    if settings.keystore_key is not None or settings.keystore_certificate_chain is not None:
        text = f"{settings.keystore_key or ''}\n{settings.keystore_certificate_chain or ''}"
        return pem_key_and_chain(text, settings.key_password, "ssl.keystore.key with ssl.keystore.certificate.chain")
    if settings.keystore_location is None:
        return None
    return key_and_chain(
        settings.keystore_type, settings.keystore_location, settings.keystore_password, settings.key_password
    )


def _show(context: ssl.SSLContext, shown: KeyAndChain, settings: TlsSettings) -> None:
    """Loads the key and the certificates that are shown to peers. OpenSSL reads them only from a file. The file is in
    memory. On systems without files in memory it is a file that only this user can read, and that is removed at
    once."""
    content = (shown.key + shown.chain).encode()
    password = shown.password or (lambda: _refuse_password())
    try:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("jesenska-key")
            try:
                os.write(descriptor, content)
                context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password)
            finally:
                os.close(descriptor)
        else:
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                context.load_cert_chain(file.name, password=password)
    except (ssl.SSLError, ValueError) as error:
        source = settings.keystore_location or "ssl.keystore.key"
        raise InvalidConfigError(
            f"The private key of {source} cannot be used: it is not the certificate's, or ssl.key.password is wrong or "
            "missing."
        ) from error


def _refuse_client_certificate(shown: KeyAndChain, settings: TlsSettings) -> None:
    """Raises InvalidConfigError if the certificate of a listener is not for servers, because all clients that check
    certificates would refuse it."""
    own = shown.chain.partition("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"
    try:
        allowed = purposes(ssl.PEM_cert_to_DER_cert(own))
    except (DerError, StopIteration, IndexError, ValueError):
        return  # OpenSSL has accepted the certificate, and clients decide.
    if allowed is not None and not allowed & {SERVER_AUTH, ANY_PURPOSE}:
        raise InvalidConfigError(
            f"The certificate of {settings.keystore_location or 'ssl.keystore.certificate.chain'} is not for servers, "
            "so no client would accept it: use one whose extended key usage contains serverAuth."
        )


def _refuse_password() -> str:
    raise ValueError("the key is encrypted")


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    trusted = settings.truststore_certificates
    if trusted is None and settings.truststore_location is not None:
        trusted = trusted_certificates(
            settings.truststore_type, settings.truststore_location, settings.truststore_password
        )
    if trusted is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(cadata=trusted)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfigError("The trust store has a certificate that cannot be read.") from error


class SessionSlot:
    """The last TLS session of a client with one server; None if there is none."""

    __slots__ = ("session",)

    def __init__(self) -> None:
        self.session: ssl.SSLSession | None = None


class TlsSessions:
    """The TLS sessions of one client with its servers, by host and port. All of them belong to the client's one
    context: a session is never resumed with other certificates or another trust store."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, int], SessionSlot] = {}

    def of(self, host: str, port: int) -> SessionSlot:
        """Returns the place of the session with a server."""
        slot = self._slots.pop((host, port), None) or SessionSlot()
        while len(self._slots) >= TLS_SESSIONS_MAX:
            del self._slots[next(iter(self._slots))]
        self._slots[host, port] = slot
        return slot


class TlsContexts:
    """The current TLS context of a listener. `look` makes a new context when the files of the stores have changed. If
    the new files cannot be used, the old context remains, and `failed` is called with a sentence that names the
    cause."""

    def __init__(self, settings: TlsSettings, failed: Callable[[str], None]) -> None:
        self.settings = settings
        self._failed = failed
        self._files = _state_of_files(settings)
        self._context = server_context(settings)

    def current(self) -> ssl.SSLContext:
        return self._context

    def look(self) -> bool:
        """Checks if the files of the key store and the trust store have changed. Returns True if a new context was
        made."""
        files = _state_of_files(self.settings)
        if files == self._files:
            return False
        self._files = files
        return self.use(self.settings)

    def use(self, settings: TlsSettings) -> bool:
        """Uses new settings from the next connection on. Returns False, and keeps the old context, if the settings
        cannot be used."""
        files = _state_of_files(settings)
        try:
            self._context = server_context(settings)
        except InvalidConfigError as error:
            self._failed(str(error))
            return False
        self.settings, self._files = settings, files
        return True


def _state_of_files(settings: TlsSettings) -> Mapping[str, tuple[int, int, int] | None]:
    found: dict[str, tuple[int, int, int] | None] = {}
    for path in (settings.keystore_location, settings.truststore_location):
        if path is not None:
            try:
                state = Path(path).stat()
                found[path] = (state.st_mtime_ns, state.st_size, state.st_ino)
            except OSError:
                found[path] = None
    return found
