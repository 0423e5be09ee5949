"""kafka-configs: shows and changes settings of topics, of single brokers, and of all brokers (the default). Flags and output of Apache Kafka 4.3.1's tool.

    --describe   --topic T | --broker ID | --broker-defaults | --entity-type topics|brokers [--entity-name N | --entity-default]   [--all]
    --alter      the same, and   --add-config a=b,c=[d,e] | --add-config-file FILE | --delete-config a,b

A value with commas stands in brackets. Left out until they are built: users, clients, ips, groups, client-metrics, broker-loggers.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jesenska.base.errors import JesenskaError
from jesenska.cli.config_listing import Setting, Source, settings_of_broker, settings_of_topics
from jesenska.cli.tool import Parser, add_bootstrap, add_output, cluster_of, print_json, read_properties, run_async, telling
from jesenska.cli.tree import add_zookeeper
from jesenska.client.admin import BROKER, DELETE, SET, TOPIC, Admin, ConfigChange
from jesenska.client.cluster import Cluster

_LATER = ("users", "clients", "ips", "groups", "client-metrics", "broker-loggers")
_SHORT_LATER = {
    "--user": "users", "--client": "clients", "--ip": "ips", "--group": "groups", "--client-metrics": "client-metrics", "--broker-logger": "broker-loggers",
}  # fmt: skip
_SHORT_LATER_DEFAULTS = {"--user-defaults": "users", "--client-defaults": "clients", "--ip-defaults": "ips"}
#: A comma that separates settings: not one inside of brackets.
_BETWEEN = re.compile(r",(?![^\[\]]*\])")


@dataclass(frozen=True, slots=True)
class _Entity:
    """What is shown or changed: `name` None means all of that kind, "" the default of all brokers."""

    kind: str
    name: str | None


def _parser() -> Parser:
    parser = Parser("kafka-configs", "Shows and changes settings of topics and brokers while they run.")
    actions = parser.add_argument_group("actions (exactly one)")
    actions.add_argument("--describe", action="store_true", help="Show the settings.")
    actions.add_argument("--alter", action="store_true", help="Change the settings.")
    add_bootstrap(parser)
    parser.add_argument("--bootstrap-controller", metavar="HOST:PORT", help=argparse.SUPPRESS)
    add_zookeeper(parser)
    parser.add_argument("--entity-type", action="append", metavar="TYPE", help="topics or brokers.")
    parser.add_argument("--entity-name", action="append", metavar="NAME", help="A topic's name or a broker's id; without it all of the type.")
    parser.add_argument("--entity-default", action="store_true", help="The default of all brokers.")
    parser.add_argument("--topic", metavar="TOPIC", help="Short for --entity-type topics --entity-name TOPIC.")
    parser.add_argument("--broker", metavar="ID", help="Short for --entity-type brokers --entity-name ID.")
    parser.add_argument("--broker-defaults", action="store_true", help="Short for --entity-type brokers --entity-default.")
    for flag in _SHORT_LATER:
        parser.add_argument(flag, dest=_later(flag), metavar="NAME", help=argparse.SUPPRESS)
    for flag in _SHORT_LATER_DEFAULTS:
        parser.add_argument(flag, dest=_later(flag), action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--all", action="store_true", help="Show all settings, not only those that were changed while running.")
    parser.add_argument("--add-config", metavar="A=B,C=[D,E]", help="Settings to set; a value with commas in brackets.")
    parser.add_argument("--add-config-file", metavar="FILE", help="A property file of settings to set.")
    parser.add_argument("--delete-config", metavar="A,B", help="Settings to go back to their defaults.")
    parser.add_argument("--force", action="store_true", help=argparse.SUPPRESS)
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    if options.describe == options.alter:
        parser.error("Command must include exactly one action: --describe, --alter")
    entity = _entity(parser, options)
    if options.bootstrap_controller:
        raise JesenskaError("Only brokers are asked: name one with --bootstrap-server host:port.")
    if options.describe:
        if options.add_config or options.add_config_file or options.delete_config:
            parser.error("--add-config, --add-config-file and --delete-config can't be used with --describe")
        async with cluster_of(options) as cluster, telling("Waiting for the broker"):
            return await _describe(cluster, entity, options)
    changes = _changes(parser, options)
    if entity.name is None:
        parser.error(f"An entity name must be specified with --alter of {entity.kind}")
    async with cluster_of(options) as cluster, telling("Waiting for the broker"):
        return await _alter(cluster, entity, changes, options)


def _later(flag: str) -> str:
    return "later" + flag.replace("-", "_")


def _entity(parser: Parser, options: argparse.Namespace) -> _Entity:
    for flag, kind in (_SHORT_LATER | _SHORT_LATER_DEFAULTS).items():
        if getattr(options, _later(flag)):
            raise _not_built(kind)
    short = [name for name in (options.topic, options.broker) if name is not None]
    if len(short) + options.broker_defaults > 1:
        parser.error("only one of --topic, --broker and --broker-defaults can be used at a time")
    if (short or options.broker_defaults) and (options.entity_type or options.entity_name or options.entity_default):
        parser.error("--entity-type, --entity-name and --entity-default can't be used with --topic, --broker or --broker-defaults")
    if options.topic is not None:
        return _Entity("topics", options.topic)
    if options.broker is not None:
        return _Entity("brokers", _broker_id(options.broker))
    if options.broker_defaults:
        return _Entity("brokers", "")
    if not options.entity_type:
        parser.error("At least one entity type must be specified: --topic, --broker, --broker-defaults or --entity-type")
    for kind in options.entity_type:
        if kind in _LATER:
            raise _not_built(kind)
        if kind not in ("topics", "brokers"):
            parser.error(f"Invalid entity type {kind}: it must be topics or brokers")
    if len(options.entity_type) > 1 or len(options.entity_name or ()) > 1:
        parser.error("Only one entity of the types topics and brokers can be given")
    kind = options.entity_type[0]
    name = options.entity_name[0] if options.entity_name else None
    if options.entity_default:
        if kind == "topics":
            parser.error("Topics have no default: --broker-defaults sets what new and unchanged topics follow")
        if name is not None:
            parser.error("--entity-default can't be used with --entity-name")
        return _Entity(kind, "")
    return _Entity(kind, _broker_id(name) if kind == "brokers" and name is not None else name)


def _not_built(kind: str) -> JesenskaError:
    return JesenskaError(f"Settings of {kind} are not built yet: kafka-configs shows and changes those of topics and brokers.")


def _broker_id(text: str) -> str:
    if not re.fullmatch(r"\d{1,10}", text):
        raise JesenskaError(f"The entity name for brokers must be a valid integer broker id, but it is: {text}.")
    return str(int(text))


def _changes(parser: Parser, options: argparse.Namespace) -> list[ConfigChange]:
    if options.add_config is None and options.add_config_file is None and options.delete_config is None:
        parser.error("At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter")
    if options.add_config is not None and options.add_config_file is not None:
        parser.error("Only one of --add-config and --add-config-file can be specified")
    added = read_properties(options.add_config_file) if options.add_config_file is not None else parse_settings(options.add_config or "")
    deleted = [name.strip() for name in (options.delete_config or "").split(",") if name.strip()]
    both = sorted(set(added) & set(deleted))
    if both:
        parser.error(f"{both[0]} can't be both set and deleted")
    return [ConfigChange(name, value, SET) for name, value in added.items()] + [ConfigChange(name, None, DELETE) for name in deleted]


def parse_settings(text: str) -> dict[str, str]:
    """The settings of `a=b,c=[d,e]`; JesenskaError for what is not in this form."""
    found = {}
    for piece in _BETWEEN.split(text) if text.strip() else ():
        name, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or not name:
            raise JesenskaError(f'{piece.strip()!r} is not a setting: write "key=val", or "key=[val1,val2]" to group values which contain commas.')
        found[name] = value[1:-1].strip() if value.startswith("[") and value.endswith("]") else value
    return found


# --- alter and describe ---------------------------------------------------------------------------------------------------------------------


async def _alter(cluster: Cluster, entity: _Entity, changes: list[ConfigChange], options: argparse.Namespace) -> int:
    assert entity.name is not None
    if entity.kind == "brokers" and entity.name:
        await _known_broker(cluster, int(entity.name))
    await Admin(cluster).alter_configs(TOPIC if entity.kind == "topics" else BROKER, entity.name, changes)
    if options.output == "json":
        print_json({"entityType": entity.kind, "entityName": entity.name or None, "changed": {item.name: item.value for item in changes}})
    elif entity.name == "":
        print("Completed updating default config for brokers in the cluster.")
    else:
        print(f"Completed updating config for {entity.kind[:-1]} {entity.name}.")
    return 0


async def _known_broker(cluster: Cluster, broker_id: int) -> None:
    await cluster.refresh([])
    if broker_id not in cluster.nodes:
        there = ", ".join(map(str, sorted(cluster.nodes)))
        raise JesenskaError(f"The broker '{broker_id}' doesn't exist: those that run are {there}.")


async def _describe(cluster: Cluster, entity: _Entity, options: argparse.Namespace) -> int:
    documents: list[dict[str, Any]] = []
    if entity.kind == "topics":
        topics = await cluster.topics()
        if entity.name is not None and entity.name not in topics:
            raise JesenskaError(f"The topic '{entity.name}' doesn't exist: kafka-topics --list shows those that do.")
        names = sorted(topics) if entity.name is None else [entity.name]
        settings = await settings_of_topics(cluster, names)
        for name in names:
            if name in settings:
                _show("topics", name, settings[name], Source.DYNAMIC_TOPIC_CONFIG, options, documents)
    else:
        if entity.name:
            await _known_broker(cluster, int(entity.name))
        else:
            await cluster.refresh([])
        names = [*map(str, sorted(cluster.nodes)), ""] if entity.name is None else [entity.name]
        for name in names:
            source = Source.DYNAMIC_BROKER_CONFIG if name else Source.DYNAMIC_DEFAULT_BROKER_CONFIG
            _show("brokers", name, await settings_of_broker(cluster, int(name) if name else None), source, options, documents)
    if options.output == "json":
        print_json(documents)
    return 0


def _show(kind: str, name: str, settings: list[Setting], changed: Source, options: argparse.Namespace, documents: list[dict[str, Any]]) -> None:
    shown = sorted((item for item in settings if options.all or item.source == changed), key=lambda item: item.name)
    if options.output == "json":
        documents.append({"entityType": kind, "entityName": name or None, "configs": [item.document() for item in shown]})
        return
    if name:
        print(f"{'All' if options.all else 'Dynamic'} configs for {kind[:-1]} {name} are:")
    else:
        print("Default configs for brokers in the cluster are:")
    for item in shown:
        print(item.line())


if __name__ == "__main__":
    sys.exit(main())
