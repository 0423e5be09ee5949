"""`jesenska forget-broker ID...`: declares that brokers will never be started again. Then the deletion of topics with
replicas on these brokers does not wait for the brokers any more, and the names of these topics can be used again.

    jesenska forget-broker 3 --zookeeper HOST:PORT/PATH         only prints the deletions that wait for broker 3
    jesenska forget-broker 3 --zookeeper HOST:PORT/PATH --yes   the controller continues without broker 3
    jesenska forget-broker 3 --data data --yes                  the same, for the directory of jesenska up -n N, or a
                                                                dataDir

The request is written into the metadata tree (node /admin/jesenska_lost_brokers), and the controller deletes it when
it has acted. Replicas of topics that are not deleted do not change: if a broker with the same id and empty directories
is started, it fetches these replicas.

    exit 0    done, or no deletion waits           1    refused: one sentence on stderr, and nothing was changed
    exit 4    topics are not deleted yet: their deletion also waits for other brokers"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.several_directories import brokers_with_data, tree_directory
from jesenska.cli.shared.tool import id_of_broker, print_json, seconds, telling
from jesenska.cli.shared.tree_login import login_file_of
from jesenska.cli.shared.tree_serving import ADDRESS_FILE
from jesenska.cli.shared.zookeeper_option import access_of, add_tls_config_file, tree_at
from jesenska.controller.reading import in_flight
from jesenska.metadata import paths
from jesenska.metadata.nodes import TopicNode, encode_lost_brokers
from jesenska.metadata.registration import controller_of
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import NodeExistsError, NoNodeError
from jesenska.metadata.watches import WatchEvent

WAITS_FOR_OTHERS = 4
_AT_ONCE = 100


def add_forget(command: argparse.ArgumentParser) -> None:
    command.add_argument("brokers", nargs="+", type=id_of_broker, metavar="ID", help="Brokers that never come again.")
    place = command.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--zookeeper", metavar="HOST:PORT[,...][/PATH]", help="Where the tree is, as zookeeper.connect names it."
    )
    place.add_argument(
        "--data", metavar="DIR", help="Where the tree is: the --data of jesenska up -n N, or a dataDir without a path."
    )
    add_tls_config_file(command)
    command.add_argument("--yes", action="store_true", help="Do it: what these brokers have is lost.")
    command.add_argument(
        "--timeout-seconds",
        type=seconds,
        default=30.0,
        metavar="S",
        help="How long to wait for the controller (default: 30).",
    )


def forget(options: argparse.Namespace) -> int:
    return asyncio.run(_forget(options))


def _address(data: str) -> tuple[str, str | None]:
    """Returns the address of the server that serves the metadata tree (ZooKeeper's nodes) of a --data directory, and
    the file with the login to it, if it has one."""
    path = Path(data)
    directory = tree_directory(path) if brokers_with_data(path) or tree_directory(path).is_dir() else path
    try:
        return (directory / ADDRESS_FILE).read_text(encoding="ascii").strip(), login_file_of(directory)
    except OSError as error:
        raise JesenskaError(
            f"No tree is served from {directory}: start its brokers, or name the tree with --zookeeper."
        ) from error


async def _forget(options: argparse.Namespace) -> int:
    lost = frozenset(options.brokers)
    servers, login_file = (options.zookeeper, None) if options.zookeeper else _address(options.data)
    access = access_of(options.zk_tls_config_file, login_file)
    async with telling("Reading the tree"), tree_at(servers, access=access) as store:
        for broker_id in sorted(lost):
            if await store.exists(paths.broker(broker_id)) is not None:
                raise JesenskaError(
                    f"Broker {broker_id} is registered: stop it first, and make sure that it is never started again."
                )
        marked, kept = await _with_replicas_on(store, lost)
        if marked and not options.yes:
            raise JesenskaError(
                f"The deletion of {', '.join(marked)} waits for {_named(lost)}: give --yes if no such broker will "
                "ever be started again with the data that it has."
            )
        if marked:
            await _ask(store, lost, options.timeout_seconds)
        left = [name for name in marked if not await _is_deleted(store, name, lost, options.timeout_seconds)]
    deleted = [name for name in marked if name not in left]
    if options.output == "json":
        print_json({"brokers": sorted(lost), "deleted": deleted, "waiting": left, "partitions": kept})
    else:
        if not marked:
            print(f"No deletion waits for {_named(lost)}.")
        if deleted:
            print(f"Deleted: {', '.join(deleted)}.")
        if left:
            print(
                f"Not deleted yet, since other brokers are gone or slow: {', '.join(left)}. Start those, or name all "
                f"that are lost at once."
            )
        if kept:
            print(
                f"{kept} partitions of other topics have replicas on {_named(lost)}. Start a broker with the same id "
                f"on empty directories: it fetches them."
            )
    return WAITS_FOR_OTHERS if left else 0


async def _with_replicas_on(store: Store, lost: frozenset[int]) -> tuple[list[str], int]:
    """Returns the topics to be deleted that have replicas on the brokers `lost`. Also returns the number of partitions
    of other topics with replicas on these brokers."""
    marked = set((await store.children(paths.DELETE_TOPICS))[0])
    names = sorted((await store.children(paths.TOPICS))[0])
    nodes = await in_flight([partial(_topic, store, name) for name in names], _AT_ONCE)
    found = {
        name: count
        for name, node in zip(names, nodes, strict=True)
        if node is not None and (count := sum(1 for replicas in node.replicas.values() if lost.intersection(replicas)))
    }
    return [name for name in found if name in marked], sum(count for name, count in found.items() if name not in marked)


async def _topic(store: Store, name: str) -> TopicNode | None:
    try:
        return TopicNode.decode((await store.get(paths.topic(name)))[0])
    except NoNodeError:
        return None


async def _is_deleted(store: Store, name: str, lost: Collection[int], timeout_seconds: float) -> bool:
    """Returns true if a topic is deleted, or will be soon because all other brokers with its replicas are running."""
    node = await _topic(store, name)
    others = (
        {broker_id for replicas in node.replicas.values() for broker_id in replicas} - set(lost)
        if node is not None
        else set()
    )
    for broker_id in others:
        if await store.exists(paths.broker(broker_id)) is None:
            return await store.exists(paths.delete_topic(name)) is None
    return await _gone(store, paths.delete_topic(name), timeout_seconds)


async def _gone(store: Store, path: str, timeout_seconds: float) -> bool:
    """Waits until the node is deleted. Returns false if it still exists after the timeout."""
    gone = asyncio.Event()

    def changed(_: WatchEvent) -> None:
        gone.set()

    try:
        async with asyncio.timeout(timeout_seconds):
            while await store.exists(path, changed) is not None:
                await gone.wait()
                gone.clear()
    except TimeoutError:
        return False
    return True


async def _ask(store: Store, lost: frozenset[int], timeout_seconds: float) -> None:
    """Asks the controller to forget the brokers, and waits until the controller has done this. Raises JesenskaError if
    there is no controller, or if the controller does not respond in time."""
    controller_id = await controller_of(store)
    if controller_id is None:
        raise JesenskaError("The cluster has no controller: start the other brokers first.")
    try:
        await store.create(paths.LOST_BROKERS, encode_lost_brokers(lost))
    except NodeExistsError:
        raise JesenskaError(
            "Another request to forget brokers is in progress: wait until the controller has deleted "
            f"{paths.LOST_BROKERS}."
        ) from None
    if not await _gone(store, paths.LOST_BROKERS, timeout_seconds):
        with suppress(NoNodeError):
            await store.delete(paths.LOST_BROKERS)
        raise JesenskaError(
            f"The controller, broker {controller_id}, has not acted within {timeout_seconds:g} s: try again. If "
            "the controller is an Apache Kafka broker, it does not support this command."
        )


def _named(brokers: Collection[int]) -> str:
    numbers = ", ".join(map(str, sorted(brokers)))
    return f"broker {numbers}" if len(brokers) == 1 else f"brokers {numbers}"
