"""The flag `--zookeeper` of Kafka's releases before 3.0: the address of the cluster's ZooKeeper. It is for tools that
read ZooKeeper's nodes. A tool logs in with the entry Client of the JAAS file that KAFKA_OPTS names, and uses TLS if
`--zk-tls-config-file` names a file with the settings `zookeeper.ssl.*`."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.config.properties import PropertiesError, parse_properties
from jesenska.metadata import paths
from jesenska.metadata.nodes import BrokerRegistration, NodeFormatError
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import ConnectionLossError, NoAuthError, NoNodeError, TreeError
from jesenska.metadata.zookeeper.client.access import TreeAccess
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.metadata.zookeeper.client.failures import explained

#: The flag with the settings of TLS to ZooKeeper.
TLS_FLAG = "--zk-tls-config-file"
_SESSION_MS = 30_000
_CONNECT_MS = 10_000


def add_zookeeper(parser: argparse.ArgumentParser) -> None:
    """Adds the flag `--zookeeper`. If the flag is given, `cluster_of` finds the brokers in ZooKeeper."""
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/PATH]",
        help="The ZooKeeper where brokers are found (in place of --bootstrap-server).",
    )


def add_tls_config_file(parser: argparse.ArgumentParser, *also: str) -> None:
    """Adds the flag `--zk-tls-config-file`, with further spellings."""
    parser.add_argument(
        TLS_FLAG,
        *also,
        metavar="FILE",
        help="Settings of TLS to ZooKeeper (zookeeper.ssl.*); other settings in the file are ignored.",
    )


def access_of(tls_config_file: str | None = None, login_file: str | None = None) -> TreeAccess:
    """Returns how a tool's connections to ZooKeeper are protected. `login_file` is a JAAS file that is used in place
    of the file in KAFKA_OPTS. Raises JesenskaError with one sentence if a file cannot be used."""
    if tls_config_file is None and login_file is None and "-D" not in os.environ.get("KAFKA_OPTS", ""):
        return TreeAccess()
    from jesenska.metadata.zookeeper.client.access_settings import tree_access

    settings = {} if tls_config_file is None else _properties(tls_config_file)
    return tree_access(settings.get, os.environ, login_file=login_file)


def _properties(path: str) -> dict[str, str]:
    try:
        return parse_properties(Path(path).read_bytes())
    except OSError as error:
        raise JesenskaError(f"The file {path} cannot be read ({error.strerror}): name one that exists.") from error
    except PropertiesError as error:
        raise JesenskaError(f"The file {path} is not in the format of a property file: {error}") from error


def protected_by(access: TreeAccess, store: Store) -> Store:
    """Returns a store that protects the nodes that it creates by ACLs, if the tool has a login or a certificate.
    Otherwise returns the same store. The paths of the store are those of Kafka's nodes."""
    if not access.is_identified:
        return store
    from jesenska.metadata.zookeeper.node_acls import ProtectingStore

    return ProtectingStore(store)


@contextlib.asynccontextmanager
async def tree_at(
    servers: str, *, any_release: bool = False, access: TreeAccess | None = None, protects: bool = True
) -> AsyncIterator[Store]:
    """Connects to the ZooKeeper that `--zookeeper` names, and yields its nodes as a store. Raises JesenskaError with
    one sentence if the connection fails, or if it is lost later. If `any_release` is True, ZooKeeper may be older than
    3.5. The default of `access` is the login that KAFKA_OPTS names, if there is one. With a login, nodes that the tool
    creates are protected as by Kafka's tools (`protected_by`), unless `protects` is False."""
    access = access or access_of()
    try:
        with explained(servers, TLS_FLAG):
            store = await connect(
                servers,
                session_timeout_ms=_SESSION_MS,
                connect_timeout_ms=_CONNECT_MS,
                any_release=any_release,
                access=access,
            )
    except ValueError as error:
        raise JesenskaError(str(error)) from error
    except ConnectionLossError as error:
        raise JesenskaError(
            f"No ZooKeeper answers at {servers}: start ZooKeeper, correct --zookeeper, or name a broker with "
            "--bootstrap-server."
        ) from error
    try:
        yield protected_by(access, store) if protects else store
    except NoAuthError as error:
        raise JesenskaError(
            f"The tree at {servers} does not allow this ({error}): log in with a JAAS file, "
            'KAFKA_OPTS="-Djava.security.auth.login.config=FILE".'
        ) from error
    except (TreeError, NodeFormatError) as error:
        raise JesenskaError(f"The tree at {servers} cannot be used: {error}") from error
    finally:
        await store.close()


async def brokers_in(servers: str) -> str:
    """Returns the addresses of the registered brokers, in the form of --bootstrap-server."""
    found = []
    async with tree_at(servers) as store:
        try:
            names = (await store.children(paths.BROKER_IDS))[0]
        except NoNodeError:
            names = []
        for name in names:
            with contextlib.suppress(NoNodeError):
                node = BrokerRegistration.decode((await store.get(f"{paths.BROKER_IDS}/{name}"))[0])
                found += [
                    f"[{item.host}]:{item.port}" if ":" in item.host else f"{item.host}:{item.port}"
                    for item in node.endpoints
                    if item.protocol == "PLAINTEXT"
                ]
    if not found:
        raise JesenskaError(
            f"No broker with a plaintext listener is registered at {servers}: start one, or correct the path after "
            "the servers."
        )
    return ",".join(found)
