"""`jesenska balance`, `jesenska decommission BROKER` and `jesenska recommission BROKER`: spread replicas and leaders
evenly over the brokers of a cluster, and empty a broker before its machine is switched off.

    jesenska balance --bootstrap-server HOST:PORT               shows the plan: loads before and after, bytes to copy
    jesenska balance --bootstrap-server HOST:PORT --execute     carries the plan out, in waves
    jesenska decommission 3 --bootstrap-server HOST:PORT --execute
                                                                moves everything away from broker 3, and lets it take
                                                                no new replicas (cordoned.log.dirs)
    jesenska recommission 3 --bootstrap-server HOST:PORT        lets broker 3 take new replicas again

Nothing is changed without --execute. Ctrl-C ends the tool; the moves of the present wave go on in the cluster, and the
same command continues with the rest. The exit code is 1 if a broker cannot be emptied, or a move was refused. These
commands work with Apache Kafka's brokers from release 2.4 on, too. Goals and limits: `controller.plans.balance`."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from jesenska.base.errors import JesenskaError, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.balance.execution import Execution
from jesenska.cli.balance.loads import Loads, read_loads
from jesenska.cli.shared.tool import add_bootstrap, cluster_of, id_of_broker, print_json, seconds, telling
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, DELETE, ConfigChange
from jesenska.config.safety import EVERY_DIRECTORY
from jesenska.controller.plans.balance import GOALS, RATES, BalancePlan, BrokerLoad, plan_balance

_CORDON: Final = "cordoned.log.dirs"
_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
_SAMPLE_SECONDS: Final = 5.0
_AT_ONCE: Final = 10


def add_balance(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    parser.add_argument(
        "--goals",
        default=",".join(GOALS),
        metavar="GOAL[,...]",
        help="What is to be even: bytes, rates, leaders (default: all of them).",
    )


def add_decommission(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", type=id_of_broker, metavar="BROKER", help="The id of the broker that is to be empty.")
    _add_common(parser)


def add_recommission(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", type=id_of_broker, metavar="BROKER", help="The id of the broker that takes replicas.")
    add_bootstrap(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_bootstrap(parser)
    parser.add_argument("--execute", action="store_true", help="Carry the plan out; without it, only show the plan.")
    parser.add_argument(
        "--throttle",
        type=_rate,
        metavar="BYTES",
        help="Limit of the copies for each broker in bytes a second, such as 50M (default: none).",
    )
    parser.add_argument(
        "--tolerance",
        type=_percent,
        default=0.05,
        metavar="PERCENT",
        help="So much more than the mean may a broker have (default: 5).",
    )
    parser.add_argument(
        "--sample-seconds",
        type=seconds,
        default=_SAMPLE_SECONDS,
        metavar="S",
        help="For so long the growth of the partitions is measured (default: 5).",
    )
    parser.add_argument(
        "--at-once",
        type=_positive,
        default=_AT_ONCE,
        metavar="N",
        help=f"So many partitions move at a time (default: {_AT_ONCE}).",
    )


def _rate(text: str) -> int:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMG]?)", text, re.IGNORECASE)
    value = 0 if found is None else int(float(found[1]) * _UNITS[found[2].upper()])
    if not 0 < value < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: write bytes a second, such as 50M")
    return value


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage: write a number such as 5")
    return value / 100


def _positive(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of partitions: write a number such as 10")
    return int(text)


def balance(options: argparse.Namespace) -> int:
    goals = [item.strip() for item in options.goals.split(",") if item.strip()]
    unknown = [item for item in goals if item not in GOALS]
    if unknown or not goals:
        raise JesenskaError(
            f"--goals {options.goals} is not a list of goals: write one or more of {', '.join(GOALS)}, separated "
            "by commas."
        )
    return asyncio.run(_work(options, goals, None))


def decommission(options: argparse.Namespace) -> int:
    return asyncio.run(_work(options, GOALS, options.broker))


def recommission(options: argparse.Namespace) -> int:
    return asyncio.run(_open_again(options))


async def _open_again(options: argparse.Namespace) -> int:
    async with telling("Waiting for the brokers"), cluster_of(options) as cluster:
        admin = Admin(cluster)
        await admin.topics()
        if options.broker not in cluster.nodes:
            raise JesenskaError(f"Broker {options.broker} is not up: start it, then recommission it.")
        await admin.alter_configs(BROKER, str(options.broker), [ConfigChange(_CORDON, None, DELETE)])
    if options.output == "json":
        print_json({"recommissioned": options.broker})
    else:
        print(f"Broker {options.broker} takes new replicas again: jesenska balance moves replicas to it.")
    return 0


async def _work(options: argparse.Namespace, goals: Sequence[str], leaving: int | None) -> int:
    async with cluster_of(options) as cluster:
        admin = Admin(cluster)
        sample = options.sample_seconds if RATES in goals else 0.0
        async with telling("Reading the loads of the brokers"):
            execution = Execution(admin, options.at_once)
            if options.execute:
                await execution.wait_for_others()
            loads = await read_loads(admin, frozenset(() if leaving is None else (leaving,)), sample)
        _require_others(loads, leaving)
        plan = plan_balance(loads.brokers, loads.partitions, tolerance=options.tolerance, goals=goals)
        if options.output != "json":
            _show(plan, loads, options.throttle)
        if plan.stuck:
            raise JesenskaError(
                f"Broker {leaving} cannot be emptied: {len(plan.stuck)} partitions, such as {plan.stuck[0]}, have a "
                "replica on every broker that could take one. Add a broker, or lower their replication factor with "
                "kafka-reassign-partitions."
            )
        if options.execute:
            await _carry_out(admin, execution, plan, loads, options.throttle, leaving)
        _end(plan, options, leaving)
    return 0


def _require_others(loads: Loads, leaving: int | None) -> None:
    staying = [broker for broker in loads.brokers if not broker.leaves]
    if leaving is not None and not staying:
        raise JesenskaError(f"Broker {leaving} is the only one: start another broker first.")
    if leaving is not None and all(broker.closed for broker in staying):
        raise JesenskaError("No other broker takes new replicas: jesenska recommission lets a broker take them.")


async def _carry_out(
    admin: Admin,
    execution: Execution,
    plan: BalancePlan,
    loads: Loads,
    bytes_per_second: int | None,
    leaving: int | None,
) -> None:
    if leaving is not None and leaving in admin.cluster.nodes:
        try:
            await admin.alter_configs(BROKER, str(leaving), [ConfigChange(_CORDON, EVERY_DIRECTORY)])
        except KafkaError as error:
            # Apache Kafka before 4.3 does not have this setting.
            print(f"Broker {leaving} can still get the replicas of new topics: {error}", file=sys.stderr)
    try:
        await execution.run(loads.partitions, plan.replicas, bytes_per_second)
    except (asyncio.CancelledError, KeyboardInterrupt):
        print("The moves that have begun go on. The same command continues with the others.", file=sys.stderr)
        raise
    await execution.elect(_to_elect(plan, loads))


def _to_elect(plan: BalancePlan, loads: Loads) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the partitions whose preferred leader does not lead them."""
    replicas = {load.topic_partition: load.replicas for load in loads.partitions} | dict(plan.replicas)
    return {key: of_it for key, of_it in replicas.items() if of_it[:1] != (loads.leaders[key],)}


# --- what is printed -------------------------------------------------------------------------------------------------


def _show(plan: BalancePlan, loads: Loads, bytes_per_second: int | None) -> None:
    rows = [("broker", "rack", "replicas", "MB", "KB/s", "leaders", "", "replicas", "MB", "KB/s", "leaders")]
    for broker in loads.brokers:
        before, after = (_cells(side[broker.broker_id]) for side in (plan.before, plan.after))
        rows.append((str(broker.broker_id), broker.rack or "-", *before, "->", *after))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if not plan.replicas:
        print("Nothing moves: the loads are as even as moves can make them.")
        return
    copied = f"{plan.moved_bytes / 1e6:,.1f} MB are copied{_duration(plan, bytes_per_second)}"
    print(f"{len(plan.replicas)} partitions change, {copied}.")


def _cells(load: BrokerLoad) -> tuple[str, str, str, str]:
    return (
        str(load.replicas),
        f"{load.size_bytes / 1e6:,.1f}",
        f"{load.bytes_per_second / 1e3:,.1f}",
        str(load.leaders),
    )


def _duration(plan: BalancePlan, bytes_per_second: int | None) -> str:
    """Returns the time that the copies take at the throttle: that of the broker that gets the most."""
    if bytes_per_second is None:
        return ""
    most = max(
        (plan.after[broker_id].size_bytes - plan.before[broker_id].size_bytes for broker_id in plan.after), default=0
    )
    return f", which takes about {max(most, 0) / bytes_per_second:,.0f} s at the throttle"


def _end(plan: BalancePlan, options: argparse.Namespace, leaving: int | None) -> None:
    if options.output == "json":
        print_json(_document(plan, options, leaving))
    elif not options.execute:
        if plan.replicas or leaving is not None:
            print("Nothing was changed: --execute carries this out.")
    elif leaving is not None:
        print(
            f"Broker {leaving} has no replicas, and gets no new ones: stop it, and switch its machine off. To keep it, "
            f"use jesenska recommission {leaving}."
        )
    elif plan.replicas:
        print("Done.")


def _document(plan: BalancePlan, options: argparse.Namespace, leaving: int | None) -> Mapping[str, Any]:
    return {
        "executed": options.execute,
        "leaving": leaving,
        "moved_bytes": plan.moved_bytes,
        "brokers": {
            str(broker_id): {"before": plan.before[broker_id]._asdict(), "after": plan.after[broker_id]._asdict()}
            for broker_id in plan.after
        },
        "partitions": [
            {"topic": key.topic, "partition": key.partition, "replicas": list(plan.replicas[key])}
            for key in sorted(plan.replicas)
        ],
    }
