"""The flag `--zookeeper` of Kafka's releases before 3.0: the address of the cluster's ZooKeeper. It is for tools that
read ZooKeeper's nodes."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator

from jesenska.base.errors import JesenskaError
from jesenska.metadata import paths
from jesenska.metadata.nodes import BrokerRegistration, NodeFormatError
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import ConnectionLossError, NoNodeError, TreeError
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.metadata.zookeeper.client.session import NoSessionError, no_session

_SESSION_MS = 30_000
_CONNECT_MS = 10_000


def add_zookeeper(parser: argparse.ArgumentParser) -> None:
    """Adds the flag `--zookeeper`. If the flag is given, `cluster_of` finds the brokers in ZooKeeper."""
    parser.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/PATH]",
        help="The ZooKeeper where brokers are found (in place of --bootstrap-server).",
    )


@contextlib.asynccontextmanager
async def tree_at(servers: str, *, any_release: bool = False) -> AsyncIterator[Store]:
    """Connects to the ZooKeeper that `--zookeeper` names, and yields its nodes as a store. Raises JesenskaError with
    one sentence if the connection fails, or if it is lost later. If `any_release` is True, ZooKeeper may be older than
    3.5."""
    try:
        store = await connect(
            servers, session_timeout_ms=_SESSION_MS, connect_timeout_ms=_CONNECT_MS, any_release=any_release
        )
    except ValueError as error:
        raise JesenskaError(str(error)) from error
    except NoSessionError as error:
        raise JesenskaError(no_session(servers)) from error
    except ConnectionLossError as error:
        raise JesenskaError(
            f"No ZooKeeper answers at {servers}: start it, correct --zookeeper, or name a broker with "
            f"--bootstrap-server."
        ) from error
    try:
        yield store
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
