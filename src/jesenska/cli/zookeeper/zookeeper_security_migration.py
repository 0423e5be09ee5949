"""zookeeper-security-migration: protects the nodes of a cluster in ZooKeeper by ACLs, or opens them to everybody.
Flags are those of Apache Kafka 3.9's script:

    --zookeeper.acl secure|unsecure       what to do
    --zookeeper.connect HOST:PORT/PATH    where (default: localhost:2181)
    --enable.path.check                   do nothing if one of the cluster's top nodes is missing
    --zk-tls-config-file FILE             the settings zookeeper.ssl.* of TLS
    --zookeeper.session.timeout MS        (default: 30000)
    --zookeeper.connection.timeout MS     (default: 30000)

The tool needs an identity: the entry Client of the JAAS file that KAFKA_OPTS names
(-Djava.security.auth.login.config), or a certificate. Protected nodes belong to this identity, so use the login of the
brokers. Top nodes that are missing are created, except /controller, which only a running controller has. Run the tool
again if brokers have created nodes in the meantime. `metadata.zookeeper.node_acls` lists the ACLs."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Sequence

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.tool import FAILED, Parser, run_async, telling
from jesenska.cli.shared.zookeeper_option import TLS_FLAG, access_of, add_tls_config_file
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import (
    ConnectionLossError,
    MultiError,
    NodeExistsError,
    NoNodeError,
    SetAcl,
    TreeError,
)
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.metadata.zookeeper.client.failures import explained
from jesenska.metadata.zookeeper.node_acls import SECURE_ROOTS, default_acl

_CONTROLLER = "/controller"
#: The number of nodes that are changed at the same time.
_AT_ONCE = 50


def _parser() -> Parser:
    parser = Parser(
        "zookeeper-security-migration", "Protects the nodes of a cluster in ZooKeeper by ACLs, or opens them."
    )
    parser.add_argument(
        "--zookeeper.acl",
        dest="acl",
        choices=["secure", "unsecure"],
        required=True,
        help="secure: only the login of this tool may change the nodes; unsecure: everybody may.",
    )
    parser.add_argument(
        "--zookeeper.connect",
        dest="servers",
        metavar="HOST:PORT[,...][/PATH]",
        default="localhost:2181",
        help="Where the nodes are (default: localhost:2181).",
    )
    for name in ("session", "connection"):
        parser.add_argument(
            f"--zookeeper.{name}.timeout",
            dest=f"{name}_ms",
            type=int,
            default=30_000,
            metavar="MS",
            help=f"The timeout of the {name} (default: 30000).",
        )
    parser.add_argument(
        "--enable.path.check",
        dest="path_check",
        action="store_true",
        help="Do nothing if one of the cluster's top nodes is missing.",
    )
    add_tls_config_file(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run_async(_parser(), arguments, _work)


async def _work(options: argparse.Namespace) -> int:
    access = access_of(options.zk_tls_config_file)
    if not access.is_identified:
        raise JesenskaError(
            "The tool has no identity: name a JAAS file with an entry Client, "
            'KAFKA_OPTS="-Djava.security.auth.login.config=FILE", or a certificate with --zk-tls-config-file.'
        )
    try:
        async with telling(f"Waiting for the ZooKeeper at {options.servers}"):
            with explained(options.servers, TLS_FLAG):
                store = await connect(
                    options.servers,
                    session_timeout_ms=options.session_ms,
                    connect_timeout_ms=options.connection_ms,
                    access=access,
                )
    except ValueError as error:
        raise JesenskaError(str(error)) from error
    except ConnectionLossError as error:
        raise JesenskaError(
            f"No ZooKeeper answers at {options.servers}: start it, or correct --zookeeper.connect."
        ) from error
    try:
        return await _migrate(store, is_secure=options.acl == "secure", path_check=options.path_check)
    except MultiError as error:
        raise JesenskaError(f"{error.error}: nothing after this node was changed; run the tool again.") from error
    except TreeError as error:
        raise JesenskaError(f"The nodes at {options.servers} cannot be changed: {error}") from error
    finally:
        await store.close()


async def _migrate(store: Store, *, is_secure: bool, path_check: bool) -> int:
    missing = [path for path in SECURE_ROOTS if await store.exists(path) is None]
    if missing:
        print(f"Warning: The following secure root paths do not exist in ZooKeeper: {','.join(missing)}")
        print("That might be due to an incorrect chroot is specified when executing the command.")
        if path_check:
            print("Exit the command.", file=sys.stdout, flush=True)
            return FAILED
        if await store.exists("/") is None:
            raise JesenskaError("The path after the servers does not exist: correct --zookeeper.connect.")
    await _set(store, ["/"], is_secure=is_secure)
    for root in SECURE_ROOTS:
        if root in missing:
            if root == _CONTROLLER:
                continue
            try:
                await store.create(root, None, acl=default_acl(root, is_secure=is_secure))
            except NodeExistsError:
                pass  # a broker was faster
        paths: list[str] = []
        async for path in _below(store, root):
            paths.append(path)
            if len(paths) >= _AT_ONCE:
                await _set(store, paths, is_secure=is_secure)
                paths = []
        await _set(store, paths, is_secure=is_secure)
    return 0


async def _below(store: Store, root: str) -> AsyncIterator[str]:
    """Yields a node's path and the paths of all nodes below it, each before the paths below it."""
    waiting = [root]
    while waiting:
        path = waiting.pop()
        yield path
        try:
            names = (await store.children(path))[0]
        except NoNodeError:
            continue  # deleted in the meantime
        waiting += [f"{path}/{name}" for name in reversed(names)]


async def _set(store: Store, paths: Sequence[str], *, is_secure: bool) -> None:
    """Sets the ACLs of nodes. A node that was deleted in the meantime is left out."""
    results = await asyncio.gather(
        *(store.multi([SetAcl(path, default_acl(path, is_secure=is_secure))]) for path in paths),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, MultiError) and isinstance(result.error, NoNodeError):
            continue
        if isinstance(result, BaseException):
            raise result


if __name__ == "__main__":
    sys.exit(main())
