"""kafka-broker-api-versions: prints the APIs and versions that each broker of the cluster supports. Flags and output
are those of Apache Kafka 4.3.1's tool:

    127.0.0.1:9092 (id: 1 rack: null isFenced: false) -> (
            Produce(0): 0 to 13 [usable: 13],
            SaslHandshake(17): UNSUPPORTED
    )

`usable` is the version that jesenska's own clients use. For an API that they do not use, it is missing. If a broker
does not answer, its line contains the reason, and the exit code is 1."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from jesenska.base.errors import KafkaError
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    add_output,
    cluster_of,
    print_json,
    run_async,
    sentence,
    telling,
)
from jesenska.client.cluster import Node
from jesenska.wire.api_names import API_NAMES, CLIENT_API_KEYS
from jesenska.wire.registry import APIS

Versions = Mapping[int, tuple[int, int]]


def _parser() -> Parser:
    parser = Parser("kafka-broker-api-versions", "Prints which versions of which APIs each broker serves.")
    add_bootstrap(parser)
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    return run_async(_parser(), arguments, _work)


async def _work(options: argparse.Namespace) -> int:
    found: list[tuple[Node, Versions | KafkaError]] = []
    async with cluster_of(options) as cluster, telling("Waiting for the brokers"):
        await cluster.refresh(())
        for broker_id, node in sorted(cluster.nodes.items()):
            try:
                found.append((node, (await cluster.channel_of(broker_id)).versions))
            except KafkaError as error:
                found.append((node, error))
    if options.output == "json":
        print_json([_document(node, versions) for node, versions in found])
    else:
        for node, versions in found:
            print(_text(node, versions))
    return int(any(isinstance(versions, KafkaError) for _, versions in found))


#: APIs between brokers in ZooKeeper mode. Kafka's present clients do not use them, and its tool prints "node too new"
#: for them.
_OF_OLD_BROKERS = (4, 5, 6, 7)


def _text(node: Node, versions: Versions | KafkaError) -> str:
    name = f"{node.host}:{node.port} (id: {node.broker_id} rack: {node.rack or 'null'} isFenced: false)"
    if isinstance(versions, KafkaError):
        return f"{name} -> ERROR: {sentence(versions)}\n"
    lines = ",\n".join(f"\t{_line(key, versions.get(key))}" for key in sorted({*CLIENT_API_KEYS, *versions}))
    return f"{name} -> (\n{lines}\n)\n"


def _line(key: int, served: tuple[int, int] | None) -> str:
    name = f"{API_NAMES.get(key, 'UNKNOWN')}({key}): "
    if served is None:
        return name + "UNSUPPORTED"
    low, high = served
    text = f"{low}" if low == high else f"{low} to {high}"
    usable = _usable(key, served)
    if usable is None:
        return name + text
    return f"{name}{text} [{usable}]" if isinstance(usable, str) else f"{name}{text} [usable: {usable}]"


def _usable(key: int, served: tuple[int, int]) -> int | str | None:
    """Returns the version that jesenska's clients use, or the reason why they can use no version. Returns None for an
    API that the clients do not know."""
    api = APIS.get(key)
    if api is None:
        return None
    if key in _OF_OLD_BROKERS:
        return "unusable: node too new"
    if served[1] < api.min_version:
        return "unusable: node too old"
    if served[0] > api.max_version:
        return "unusable: node too new"
    return min(served[1], api.max_version)


def _document(node: Node, versions: Versions | KafkaError) -> dict[str, object]:
    about: dict[str, object] = {"id": node.broker_id, "host": node.host, "port": node.port, "rack": node.rack}
    if isinstance(versions, KafkaError):
        return about | {"error": sentence(versions)}
    apis = []
    for key, served in sorted(versions.items()):
        usable = _usable(key, served)
        apis.append(
            {
                "key": key,
                "name": API_NAMES.get(key),
                "min": served[0],
                "max": served[1],
                "usable": usable if isinstance(usable, int) else None,
            }
        )
    return about | {"apis": apis}


if __name__ == "__main__":
    sys.exit(main())
