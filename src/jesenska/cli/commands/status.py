"""`jesenska status`: prints the state of a broker and of its cluster, for people, and for health checks by its exit
code. --check chooses the condition:

    live       the broker answers; otherwise a process supervisor should restart it
    ready      the broker also knows its cluster and the controller: clients can be sent to it
    cluster    also, every partition of the cluster has a leader; otherwise an operator is needed (the default)
    replicas   also, every replica of the cluster is in sync: check this before you shut down the next broker

    exit 0    the condition is met
    exit 1    the broker does not answer
    exit 3    the broker answers, and is not ready
    exit 4    the broker is ready, and partitions have no leader
    exit 5    all partitions have a leader, and some have replicas that are not in sync

With --data the command also prints the process that has locked that directory, and the memory of this process. For
several brokers (`jesenska up -n N`) it prints the supervising process, and the memory of all processes."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.several_directories import broker_directory, brokers_with_data, tree_directory
from jesenska.cli.shared.stopping import lock_holder
from jesenska.cli.shared.tool import directory, print_json, read_properties, seconds
from jesenska.client.administration.admin import Admin
from jesenska.client.client_config import client_config
from jesenska.client.cluster import Cluster
from jesenska.config.settings.client_settings import ADMIN_SETTINGS

_NO_ANSWER_SECONDS = 10.0
_BOOTSTRAP = "127.0.0.1:9092"
LIVE, READY, CLUSTER, REPLICAS = "live", "ready", "cluster", "replicas"
NOT_READY, WITHOUT_LEADERS, UNDER_REPLICATED = 3, 4, 5


def add_status(status: argparse.ArgumentParser) -> None:
    status.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="The broker to ask (default: bootstrap.servers of --command-config, else 127.0.0.1:9092).",
    )
    status.add_argument(
        "--command-config", metavar="FILE", help="Property file of the client, for a broker with TLS or logins."
    )
    status.add_argument(
        "--data", type=directory, metavar="DIR", help="Also say which process holds this directory, and its memory."
    )
    status.add_argument(
        "--check",
        choices=(LIVE, READY, CLUSTER, REPLICAS),
        default=CLUSTER,
        help="What the exit code answers: the broker answers (1 if not), it is ready (3), every partition of the "
        "cluster has a leader (4; the default), "
        "every replica is in sync (5).",
    )
    status.add_argument(
        "--timeout-seconds",
        type=seconds,
        default=_NO_ANSWER_SECONDS,
        metavar="S",
        help="How long to wait for an answer (default: 10).",
    )


def status(options: argparse.Namespace) -> int:
    """Prints the state of the broker and its cluster, and returns the exit code."""
    return asyncio.run(_status(options))


async def _status(options: argparse.Namespace) -> int:
    settings = read_properties(options.command_config)
    bootstrap = options.bootstrap_server or settings.get("bootstrap.servers", _BOOTSTRAP)
    config = replace(client_config(ADMIN_SETTINGS, settings), request_timeout_seconds=options.timeout_seconds)
    cluster = Cluster(bootstrap, config)
    try:
        async with asyncio.timeout(options.timeout_seconds):
            topics = await cluster.topics()
            is_ready = cluster.controller_id in cluster.nodes
            groups = await Admin(cluster).list_groups() if options.check in (CLUSTER, REPLICAS) and is_ready else None
    except TimeoutError:
        raise JesenskaError(
            f"{bootstrap} has not answered within {options.timeout_seconds:g} s: is the broker up?"
        ) from None
    finally:
        await cluster.close()
    partitions = [partition for topic in topics.values() for partition in topic.partitions]
    leaderless = sum(1 for partition in partitions if partition.leader < 0)
    lacking = sum(1 for partition in partitions if len(partition.in_sync_replicas) < len(partition.replicas))
    fields: dict[str, object] = {
        "ready": is_ready,
        "cluster_id": cluster.cluster_id,
        "brokers": len(cluster.nodes),
        "topics": len(topics),
        "partitions": len(partitions),
        "partitions_without_leader": leaderless,
        "under_replicated_partitions": lacking,
        "groups": None if groups is None else len(groups),
    }
    if options.data is not None:
        holder = lock_holder(Path(options.data))
        fields["process"] = holder
        fields["memory_mb"] = None if holder is None else _resident_mb([holder, *_holders_below(Path(options.data))])
    if options.output == "json":
        print_json(fields)
    else:
        for name, value in fields.items():
            shown = (
                {True: "yes", False: "no", None: "-"}.get(value, value)
                if isinstance(value, bool) or value is None
                else value
            )
            print(f"{name.replace('_', ' ') + ':':30}{shown}")
    return _code(options.check, is_ready=is_ready, leaderless=leaderless, lacking=lacking)


def _code(check: str, *, is_ready: bool, leaderless: int, lacking: int) -> int:
    if check == LIVE:
        return 0
    if not is_ready:
        return NOT_READY
    if check == READY:
        return 0
    if leaderless:
        return WITHOUT_LEADERS
    return UNDER_REPLICATED if check == REPLICAS and lacking else 0


def _holders_below(data: Path) -> list[int]:
    """Returns the process ids of several brokers and of their metadata tree. Returns an empty list if the directory
    contains the data of a single broker."""
    directories = [tree_directory(data), *(broker_directory(data, number) for number in brokers_with_data(data))]
    return [holder for directory in directories if (holder := lock_holder(directory)) is not None]


def _resident_mb(processes: Sequence[int]) -> float | None:
    """Returns the memory of these processes in MB. Returns None if the operating system does not report it."""
    found: list[int] = []
    for process in processes:
        try:
            text = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        found += [int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:")]
    return round(sum(found) / 1024, 1) if found else None
