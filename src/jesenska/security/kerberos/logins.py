"""Reads the Kerberos logins in JAAS format: the login of a server that accepts clients, and the login of a client.

    com.sun.security.auth.module.Krb5LoginModule required
        useKeyTab=true keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";     a server, or a client
        useTicketCache=true ticketCache="/tmp/krb5cc_1000";                         a client; without ticketCache
                                                                                    the user's own cache

The name of the service is the setting sasl.kerberos.service.name or the JAAS option serviceName. If a login has both a
ticket cache and a key tab, a client uses the ticket cache first. It uses the key tab if the cache has no valid ticket.
Other options of Java's module have no effect.

A server needs no KDC. It reads the key tab for each login, so that a new key can be used at once. A client with a key
tab stores its tickets in memory. All clients of a process with the same key tab and principal share one cache, and the
library gets new tickets before the old tickets expire. With a ticket cache file, each login uses the tickets that
kinit has written to the file by then."""

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
#: The value of the option principal that means every key of the key tab, as in Java.
_ANY: Final = "*"


class _Source(NamedTuple):
    """The key tab, the principal and the ticket cache that a JAAS login names."""

    key_tab: Path | None
    has_cache: bool
    cache: str | None
    principal: str | None


def _source(login: Login) -> _Source:
    options = login.options
    key_tab = None
    if options.get("useKeyTab", "").lower() == "true":
        # As in Java, the path may begin with FILE:.
        key_tab = Path(login.required("keyTab").removeprefix("FILE:"))
    principal = options.get("principal")
    return _Source(
        key_tab,
        options.get("useTicketCache", "").lower() == "true",
        options.get("ticketCache"),
        None if principal == _ANY else principal,
    )


def service_name(login: Login, setting: object) -> str | None:
    """Returns the name of the service; None if neither the JAAS login nor the setting names a service. Raises
    InvalidConfigError if they name different services."""
    option = login.options.get("serviceName")
    if option and setting and option != setting:
        raise InvalidConfigError(
            f"{SERVICE_NAME}={setting} and the JAAS option serviceName={option} differ: set one of them."
        )
    found = setting or option
    return None if not found else str(found)


def server_of(login: Login, setting: object, user_of: Callable[[str], str]) -> Callable[[], GssapiServer]:
    """Returns the function that creates the server's side of a GSSAPI exchange. `setting` is
    sasl.kerberos.service.name. Raises InvalidConfigError, with a message of one sentence, if the login cannot be
    used."""
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
    """The login of a client with Kerberos tickets. `exchange` may block."""

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
        """Returns a new exchange with the service on a host. Raises SaslError if there are no tickets."""
        try:
            target = import_service(self._library, self._service, host)
            return GssapiClient(Initiator(self._library, self._credential(), target))
        except GssapiError as error:
            raise SaslError(str(error)) from error

    def _credential(self) -> Credential:
        """Returns a credential for one exchange. It is not stored for later exchanges, because a stored credential
        would not be renewed."""
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
    """Returns the Kerberos login of a client. `setting` is sasl.kerberos.service.name. Raises InvalidConfigError, with
    a message of one sentence, if the login cannot be used."""
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
