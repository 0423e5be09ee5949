"""Messages for a person whose program cannot open a session on a ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jesenska.base.errors import JesenskaError
from jesenska.metadata.tree_operations import NoAuthError
from jesenska.metadata.zookeeper.client.session import NoSessionError, TlsFailedError, no_session


@contextmanager
def explained(servers: str, tls_settings: str) -> Iterator[None]:
    """Raises JesenskaError with one sentence in place of the error of a connection that fails because of TLS, of the
    login, or of a server that gives no session. `tls_settings` names the settings of TLS."""
    try:
        yield
    except NoSessionError as error:
        raise JesenskaError(no_session(servers)) from error
    except TlsFailedError as error:
        raise JesenskaError(
            f"No TLS connection to the ZooKeeper at {servers} can be made ({error.reason}): check its certificate and "
            f"{tls_settings}."
        ) from error
    except NoAuthError as error:
        raise JesenskaError(
            f"There is no login to the ZooKeeper at {servers} ({error.reason}): name a JAAS file with the right entry "
            f'Client, KAFKA_OPTS="-Djava.security.auth.login.config=FILE".'
        ) from error
