"""The Kerberos logins of JAAS: of a server that accepts clients, and of a client.

    com.sun.security.auth.module.Krb5LoginModule required
        useKeyTab=true keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";     a server, or a client
        useTicketCache=true ticketCache="/tmp/krb5cc_1000";                         a client; without ticketCache
                                                                                    the user's own cache

The name of the service is the setting sasl.kerberos.service.name or the JAAS option serviceName. Of a login with both
kinds, a client takes the cache first, and the key tab if the cache has no valid ticket. Other options of Java's
module have no effect.

A server needs no KDC. It reads the key tab for each login, so that a new key serves at once. A client gets tickets by
a key tab in its own memory, one cache for all clients of a process with the same key tab and principal; the library
gets others before they expire. Tickets of a cache file are those that kinit has put there, or puts there later."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from jesenska.base.errors import InvalidConfigError
from jesenska.security.jaas import Login
from jesenska.security.kerberos.exchange import GssapiClient, GssapiServer
from jesenska.security.kerberos.gssapi_library import (
    Acceptor,
    Credential,
    GssapiError,
    Initiator,
    Library,
    accepting,
    import_principal,
    import_service,
    initiating,
)
from jesenska.security.sasl import SaslError

SERVICE_NAME: Final = "sasl.kerberos.service.name"
#: In place of a principal in Java: every key of the key tab.
_ANY: Final = "*"


class _Source(NamedTuple):
    """The places that a JAAS login names."""

    key_tab: Path | None
    has_cache: bool
    cache: str | None
    principal: str | None


def _source(login: Login) -> _Source:
    options = login.options
    key_tab = None
    if options.get("useKeyTab", "").lower() == "true":
        # Java takes a path with FILE: before it, too.
        key_tab = Path(login.required("keyTab").removeprefix("FILE:"))
    principal = options.get("principal")
    return _Source(
        key_tab,
        options.get("useTicketCache", "").lower() == "true",
        options.get("ticketCache"),
        None if principal == _ANY else principal,
    )


def service_name(login: Login, setting: object) -> str | None:
    """Returns the name of the service; None if neither the JAAS login nor the setting has it. InvalidConfigError if
    the two differ."""
    option = login.options.get("serviceName")
    if option and setting and option != setting:
        raise InvalidConfigError(
            f"{SERVICE_NAME}={setting} and the JAAS option serviceName={option} differ: set one of them."
        )
    found = setting or option
    return None if not found else str(found)


def server_of(login: Login, setting: object, user_of: Callable[[str], str]) -> Callable[[], GssapiServer]:
    """Returns the function that makes the server's side of an exchange. `setting` is sasl.kerberos.service.name.
    InvalidConfigError with one sentence if the login cannot be used."""
    source = _source(login)
    if source.key_tab is None:
        raise InvalidConfigError(
            "A listener with GSSAPI needs keys: set the JAAS options useKeyTab=true, keyTab and principal of "
            f"{login.module}."
        )
    service = service_name(login, setting)
    if service and source.principal and source.principal.partition("@")[0].partition("/")[0] != service:
        raise InvalidConfigError(
            f"{SERVICE_NAME}={service} is not the service of the principal {source.principal}: clients would ask for "
            f"tickets that this broker cannot read. Set {SERVICE_NAME} to the principal's first part."
        )
    library = Library.load()
    try:
        credential = accepting(library, source.key_tab, source.principal)
    except GssapiError as error:
        raise InvalidConfigError(
            f"The key tab {source.key_tab} has no key that can be used for {source.principal or 'a listener'}: {error}."
        ) from error
    return lambda: GssapiServer(Acceptor(library, credential), user_of)


class TicketLogin:
    """The login of a client with tickets. `exchange` may block."""

    def __init__(self, source: _Source, service: str) -> None:
        self._library = Library.load()
        self._source = source
        self._service = service
        if source.principal is not None:
            try:
                import_principal(self._library, source.principal)
            except GssapiError as error:
                raise InvalidConfigError(f"{source.principal} is not a principal: {error}.") from error

    def exchange(self, host: str) -> GssapiClient:
        """Returns a new exchange with the service on a host; SaslError if there are no tickets."""
        try:
            target = import_service(self._library, self._service, host)
            return GssapiClient(Initiator(self._library, self._credential(), target))
        except GssapiError as error:
            raise SaslError(str(error)) from error

    def _credential(self) -> Credential:
        """Returns a credential for one exchange: a credential that is kept would not be renewed."""
        key_tab, has_cache, cache, principal = self._source
        if has_cache:
            try:
                found = initiating(self._library, principal, {"ccache": cache} if cache else {})
                if key_tab is None or not found.has_expired:
                    return found
            except GssapiError:
                if key_tab is None:
                    raise
        mark = hashlib.sha256(f"{key_tab}\0{principal}".encode()).hexdigest()[:32]
        memory = f"MEMORY:jesenska-{mark}"
        try:
            return initiating(self._library, principal, {"client_keytab": f"FILE:{key_tab}", "ccache": memory})
        except GssapiError as error:
            raise SaslError(f"no tickets of {principal or 'a client'} by the key tab {key_tab}: {error}") from error


def ticket_login(login: Login, setting: object) -> TicketLogin:
    """Returns the login of a client. `setting` is sasl.kerberos.service.name. InvalidConfigError with one sentence if
    the login cannot be used."""
    if login.mechanism != "GSSAPI":
        raise InvalidConfigError(
            "sasl.mechanism=GSSAPI cannot be used with "
            f"{login.module}: set sasl.jaas.config to a login of com.sun.security.auth.module.Krb5LoginModule."
        )
    source = _source(login)
    if source.key_tab is None and not source.has_cache:
        raise InvalidConfigError(
            "sasl.mechanism=GSSAPI needs tickets: set the JAAS options useKeyTab=true, keyTab and principal, or "
            "useTicketCache=true."
        )
    service = service_name(login, setting)
    if service is None:
        raise InvalidConfigError(
            f"sasl.mechanism=GSSAPI needs the name of the brokers' service: set {SERVICE_NAME}, for instance to kafka."
        )
    return TicketLogin(source, service)
