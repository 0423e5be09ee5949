"""kafka-configs: shows and changes settings of topics, of single brokers, of all brokers (the default), of a broker's
loggers, of groups and of client metrics, and quotas of users, clients and addresses. Flags and output are those of
Apache Kafka 4.3.1's tool.

    --describe   --topic T | --broker ID | --broker-defaults | --entity-type TYPE [--entity-name N | --entity-default]
                 | ... (`config_entities`)   [--all]
    --alter      an entity, and    --add-config a=b,c=[d,e] | --add-config-file FILE | --delete-config a,b

A value with commas is written in brackets. SCRAM credentials of users can be changed (`scram_credentials`). Differs
from Kafka's tool: a topic or a broker that does not exist is an error."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any

from jesenska.base.errors import InvalidConfigError, JesenskaError
from jesenska.cli.kafka.topics.client_quotas import alter_quotas, quotas_of
from jesenska.cli.kafka.topics.config_entities import QUOTAS, Entity, add_entities, entities_of
from jesenska.cli.kafka.topics.config_listing import (
    ShownSetting,
    ShownSource,
    resources_with_settings,
    settings_of_broker,
    settings_of_resource,
    settings_of_topics,
    with_near_miss,
)
from jesenska.cli.kafka.topics.scram_credentials import alter_credentials, are_credentials
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    add_output,
    cluster_of,
    meant,
    print_json,
    read_properties,
    run_async,
    telling,
)
from jesenska.cli.shared.zookeeper_option import add_zookeeper
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    TOPIC,
    ConfigChange,
)
from jesenska.client.cluster import Cluster
from jesenska.config.settings.broker_settings import BROKER_SETTINGS
from jesenska.config.settings.topic_settings import TOPIC_SETTINGS

_RESOURCES = {
    "topics": TOPIC,
    "brokers": BROKER,
    "broker-loggers": BROKER_LOGGER,
    "groups": GROUP,
    "client-metrics": CLIENT_METRICS,
}
#: The entity types whose names a broker lists. The value is the source of settings that were changed.
_LISTED = {"groups": ShownSource.DYNAMIC_GROUP_CONFIG, "client-metrics": ShownSource.DYNAMIC_CLIENT_METRICS_CONFIG}
#: A comma outside of brackets, which separates settings.
_BETWEEN = re.compile(r",(?![^\[\]]*\])")


def _parser() -> Parser:
    parser = Parser("kafka-configs", "Shows and changes settings of topics, brokers and others while they run.")
    actions = parser.add_argument_group("actions (exactly one)")
    actions.add_argument("--describe", action="store_true", help="Show the settings.")
    actions.add_argument("--alter", action="store_true", help="Change the settings.")
    add_bootstrap(parser)
    parser.add_argument("--bootstrap-controller", metavar="HOST:PORT", help=argparse.SUPPRESS)
    add_zookeeper(parser)
    add_entities(parser)
    parser.add_argument(
        "--all", action="store_true", help="Show all settings, not only those that were changed while running."
    )
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
    entities = entities_of(parser, options)
    if options.bootstrap_controller:
        raise JesenskaError("--bootstrap-controller cannot be used: name a broker with --bootstrap-server host:port.")
    if options.describe:
        if options.add_config or options.add_config_file or options.delete_config:
            parser.error("--add-config, --add-config-file and --delete-config can't be used with --describe")
        async with cluster_of(options) as cluster, telling("Waiting for the broker"):
            if entities[0].kind in QUOTAS:
                return await _describe_quotas(cluster, entities, options)
            return await _describe(cluster, entities[0], options)
    changes = _changes(parser, options)
    if len(entities) == 1 and entities[0].kind == "users" and entities[0].name and are_credentials(changes):
        async with cluster_of(options) as cluster, telling("Waiting for the broker"):
            return await _alter_credentials(cluster, entities[0].name, changes, options)
    if entities[0].kind in QUOTAS:
        async with cluster_of(options) as cluster, telling("Waiting for the broker"):
            return await _alter_quotas(cluster, entities, changes, options)
    async with cluster_of(options) as cluster, telling("Waiting for the broker"):
        return await _alter(cluster, entities[0], changes, options)


def _changes(parser: Parser, options: argparse.Namespace) -> list[ConfigChange]:
    if options.add_config is None and options.add_config_file is None and options.delete_config is None:
        parser.error(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )
    if options.add_config is not None and options.add_config_file is not None:
        parser.error("Only one of --add-config and --add-config-file can be specified")
    added = (
        read_properties(options.add_config_file)
        if options.add_config_file is not None
        else parse_settings(options.add_config or "")
    )
    deleted = [name.strip() for name in (options.delete_config or "").split(",") if name.strip()]
    both = sorted(set(added) & set(deleted))
    if both:
        parser.error(f"{both[0]} can't be both set and deleted")
    return [ConfigChange(name, value, SET) for name, value in added.items()] + [
        ConfigChange(name, None, DELETE) for name in deleted
    ]


def parse_settings(text: str) -> dict[str, str]:
    """Returns the settings in a text of the form `a=b,c=[d,e]`. Raises JesenskaError for text that is not in this
    form."""
    found = {}
    for piece in _BETWEEN.split(text) if text.strip() else ():
        name, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or not name:
            raise JesenskaError(
                f'{piece.strip()!r} is not a setting: write "key=val", or "key=[val1,val2]" to group values which '
                f"contain commas."
            )
        found[name] = value[1:-1].strip() if value.startswith("[") and value.endswith("]") else value
    return found


# --- alter and describe ----------------------------------------------------------------------------------------------


async def _alter(cluster: Cluster, entity: Entity, changes: list[ConfigChange], options: argparse.Namespace) -> int:
    assert entity.name is not None
    if entity.kind in ("brokers", "broker-loggers") and entity.name:
        await _known_broker(cluster, int(entity.name))
    table = TOPIC_SETTINGS if entity.kind == "topics" else BROKER_SETTINGS if entity.kind == "brokers" else None
    try:
        await Admin(cluster).alter_configs(_RESOURCES[entity.kind], entity.name, changes)
    except InvalidConfigError as error:
        raise (error if table is None else with_near_miss(error, [item.name for item in changes], table)) from error
    if entity.kind == "brokers":
        # A broker stores settings that it does not know, because they may belong to a plugin.
        for item in changes:
            if item.name not in BROKER_SETTINGS and (
                near := meant(item.name, (setting.name for setting in BROKER_SETTINGS))
            ):
                print(
                    f"kafka-configs: {item.name} is not a known setting of a broker{near}; the setting was "
                    "changed all the same.",
                    file=sys.stderr,
                )
    if options.output == "json":
        print_json(
            {
                "entityType": entity.kind,
                "entityName": entity.name or None,
                "changed": {item.name: item.value for item in changes},
            }
        )
    elif entity.name == "":
        print("Completed updating default config for brokers in the cluster.")
    else:
        print(f"Completed updating config for {_one(entity.kind)} {entity.name}.")
    return 0


async def _alter_credentials(
    cluster: Cluster, user: str, changes: list[ConfigChange], options: argparse.Namespace
) -> int:
    await alter_credentials(cluster, user, changes)
    if options.output == "json":
        names = {item.name: "deleted" if item.value is None else "set" for item in changes}
        print_json({"entityType": "users", "entityName": user, "credentials": names})
    else:
        print(f"Completed updating config for user {user}.")
    return 0


async def _alter_quotas(
    cluster: Cluster, entities: Sequence[Entity], changes: list[ConfigChange], options: argparse.Namespace
) -> int:
    await alter_quotas(cluster, entities, changes)
    if options.output == "json":
        names = {_one(item.kind): item.name or None for item in entities}
        print_json({"entity": names, "quotas": {item.name: item.value for item in changes}})
    elif entities[0].name:
        print(f"Completed updating config for {_one(entities[0].kind)} {entities[0].name}.")
    else:
        print(f"Completed updating default config for {entities[0].kind} in the cluster.")
    return 0


def _one(kind: str) -> str:
    """Returns the singular of an entity type, as Kafka's tool prints it."""
    return kind[:-1]


async def _known_broker(cluster: Cluster, broker_id: int) -> None:
    await cluster.refresh([])
    if broker_id not in cluster.nodes:
        there = ", ".join(map(str, sorted(cluster.nodes)))
        raise JesenskaError(f"The broker '{broker_id}' doesn't exist: the running brokers are {there}.")


async def _describe(cluster: Cluster, entity: Entity, options: argparse.Namespace) -> int:
    documents: list[dict[str, Any]] = []
    if entity.kind == "topics":
        topics = await cluster.topics()
        if entity.name is not None and entity.name not in topics:
            raise JesenskaError(f"The topic '{entity.name}' doesn't exist: kafka-topics --list shows those that do.")
        names = sorted(topics) if entity.name is None else [entity.name]
        settings = await settings_of_topics(cluster, names)
        for name in names:
            if name in settings:
                _show("topics", name, settings[name], ShownSource.DYNAMIC_TOPIC_CONFIG, options, documents)
    elif entity.kind == "broker-loggers":
        assert entity.name is not None
        await _known_broker(cluster, int(entity.name))
        loggers = await settings_of_resource(cluster, BROKER_LOGGER, entity.name, int(entity.name))
        _show(entity.kind, entity.name, loggers, ShownSource.DYNAMIC_BROKER_LOGGER_CONFIG, options, documents)
    elif entity.kind in _LISTED:
        await _describe_listed(cluster, entity, options, documents)
    else:
        if entity.name:
            await _known_broker(cluster, int(entity.name))
        else:
            await cluster.refresh([])
        names = [*map(str, sorted(cluster.nodes)), ""] if entity.name is None else [entity.name]
        for name in names:
            source = ShownSource.DYNAMIC_BROKER_CONFIG if name else ShownSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            _show(
                "brokers",
                name,
                await settings_of_broker(cluster, int(name) if name else None),
                source,
                options,
                documents,
            )
    if options.output == "json":
        print_json(documents)
    return 0


async def _describe_listed(
    cluster: Cluster, entity: Entity, options: argparse.Namespace, documents: list[dict[str, Any]]
) -> None:
    """Shows the settings of groups or client metrics: of the named group or metrics, or of all that have settings."""
    resource, source = _RESOURCES[entity.kind], _LISTED[entity.kind]
    known = await resources_with_settings(cluster, resource)
    names = known
    if entity.name is not None:
        there = (
            options.all or entity.name in known or (entity.kind == "groups" and entity.name in await _groups(cluster))
        )
        if not there and options.output == "text":
            print(f"The {_one(entity.kind)} '{entity.name}' doesn't exist and doesn't have dynamic config.")
        names = [entity.name] if there else []
    for name in names:
        # A group without changed settings has nothing to show, and a broker may not support settings of groups. So
        # such a group's settings are not requested.
        settings = await settings_of_resource(cluster, resource, name) if options.all or name in known else []
        _show(entity.kind, name, settings, source, options, documents)


async def _groups(cluster: Cluster) -> set[str]:
    return {item.group_id for item in await Admin(cluster).list_groups()}


async def _describe_quotas(cluster: Cluster, entities: Sequence[Entity], options: argparse.Namespace) -> int:
    found = await quotas_of(cluster, entities)
    if options.output == "json":
        print_json([document for _, document in found])
        return 0
    for line, _ in found:
        print(line)
    return 0


def _show(
    kind: str,
    name: str,
    settings: list[ShownSetting],
    changed: ShownSource,
    options: argparse.Namespace,
    documents: list[dict[str, Any]],
) -> None:
    shown = sorted((item for item in settings if options.all or item.source == changed), key=lambda item: item.name)
    if options.output == "json":
        documents.append(
            {"entityType": kind, "entityName": name or None, "configs": [item.document() for item in shown]}
        )
        return
    if name:
        print(f"{'All' if options.all else 'Dynamic'} configs for {_one(kind)} {name} are:")
    else:
        print("Default configs for brokers in the cluster are:")
    for item in shown:
        print(item.line())


if __name__ == "__main__":
    sys.exit(main())
