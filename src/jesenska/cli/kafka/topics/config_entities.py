"""The entities of kafka-configs: its flags, and the rules of Apache Kafka 4.3.1 about their combinations.

--entity-type T [--entity-name N | --entity-default]        only users and clients may be given together, each
                                                            with a name
--topic --broker --broker-logger --group --client-metrics --user --client --ip        short for a type with a name
--broker-defaults --user-defaults --client-defaults --ip-defaults                     short for a type's default"""

from __future__ import annotations

import argparse
import ipaddress
import re
import socket
from dataclasses import dataclass

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.tool import Parser

#: The entity types that have settings. The next line has the entity types that have quotas.
RESOURCES = ("topics", "brokers", "broker-loggers", "groups", "client-metrics")
QUOTAS = ("users", "clients", "ips")
_KINDS = (*RESOURCES, *QUOTAS)
_WITH_DEFAULTS = ("brokers", *QUOTAS)
_SHORT = {
    "topic": "topics",
    "broker": "brokers",
    "broker_logger": "broker-loggers",
    "group": "groups",
    "client_metrics": "client-metrics",
    "user": "users",
    "client": "clients",
    "ip": "ips",
}


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity to be shown or changed. `name` is None for all entities of the kind, and "" for the default of the
    kind."""

    kind: str
    name: str | None


def add_entities(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--entity-type", action="append", metavar="TYPE", help=f"{', '.join(_KINDS)}.")
    parser.add_argument(
        "--entity-name",
        action="append",
        dest="entity_names",
        metavar="NAME",
        help="A topic's name, a broker's id, ...; without it all of the type.",
    )
    parser.add_argument(
        "--entity-default",
        action="append_const",
        const="",
        dest="entity_names",
        help="The default of all brokers, users, clients or ips.",
    )
    for name, kind in _SHORT.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(
            flag, action="append", metavar="NAME", help=f"Short for --entity-type {kind} --entity-name NAME."
        )
        if kind in _WITH_DEFAULTS:
            parser.add_argument(
                f"{flag}-defaults", action="store_true", help=f"Short for --entity-type {kind} --entity-default."
            )


def entities_of(parser: Parser, options: argparse.Namespace) -> list[Entity]:
    """Returns the entities that the flags select: one entity, or a user and a client. If the flags are wrong, the tool
    ends with one sentence."""
    given = _given(parser, options)
    if not given:
        parser.error(
            "At least one entity type must be specified: --topic, --broker, --broker-defaults or --entity-type"
        )
    kinds = [item.kind for item in given]
    for kind in kinds:
        if kind not in _KINDS:
            parser.error(f"Invalid entity type {kind}: it must be one of {', '.join(_KINDS)}")
    for kind in kinds:
        if kinds.count(kind) > 1:
            parser.error(f"Duplicate entity type(s) specified: {kind}")
    if len(kinds) > 1 and set(kinds) != {"users", "clients"}:
        parser.error("Only 'users' and 'clients' entity types may be specified together")
    return [_checked(parser, item, "alter" if options.alter else "describe") for item in given]


def _given(parser: Parser, options: argparse.Namespace) -> list[Entity]:
    short = []
    for flag, kind in _SHORT.items():
        names = getattr(options, flag) or []
        if len(names) > 1:
            parser.error(f"--{flag.replace('_', '-')} was given more than once: name one")
        short += [Entity(kind, name) for name in names]
        if getattr(options, f"{flag}_defaults", False):
            short.append(Entity(kind, ""))
    kinds, names = options.entity_type or [], options.entity_names or []
    if not kinds and not names:
        return short
    if short:
        parser.error(
            "--entity-type, --entity-name and --entity-default can't be used with the flags of single types, as "
            "--topic, --broker or --broker-defaults"
        )
    if kinds and len(names) > len(kinds):
        parser.error("There are more names (--entity-name, --entity-default) than types (--entity-type)")
    return [Entity(kind, names[index] if index < len(names) else None) for index, kind in enumerate(kinds)]


def _checked(parser: Parser, entity: Entity, action: str) -> Entity:
    kind, name = entity.kind, entity.name
    if name == "" and kind not in _WITH_DEFAULTS:
        more = ": --broker-defaults sets what new and unchanged topics follow" if kind == "topics" else ""
        parser.error(f"--entity-default must not be specified with --{action} of {kind}{more}")
    if name is None and (action == "alter" or kind == "broker-loggers"):
        which = "An entity-name or default entity" if kind in _WITH_DEFAULTS else "An entity name"
        parser.error(f"{which} must be specified with --{action} of {kind}")
    if name and kind in ("brokers", "broker-loggers"):
        if not re.fullmatch(r"\d{1,10}", name):
            raise JesenskaError(f"The entity name for {kind} must be a valid integer broker id, but it is: {name}.")
        return Entity(kind, str(int(name)))
    if name and kind == "ips" and not _is_address(name):
        raise JesenskaError(f"The entity name for ips must be a valid IP or resolvable host, but it is: {name}.")
    return entity


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        try:
            socket.getaddrinfo(name, None)
        except (OSError, UnicodeError):
            return False
    return True
