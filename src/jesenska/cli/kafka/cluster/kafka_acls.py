"""kafka-acls: lists, adds and removes access rules (ACLs). Flags and output lines are those of Apache Kafka 4.3.1's
tool; `--output json` prints objects.

    --list      the rules of the given resources, or of all resources; with --principal only the rules of a user
    --add       --allow-principal, --deny-principal, from --allow-host and --deny-host (all), for --operation (All)
    --remove    the flags of --add; without a principal, all rules of the resource. The tool asks first, except with
                --force

    resources   --topic, --group, --cluster, --transactional-id, --delegation-token, --user-principal, each with a name
                or `*`, as --resource-pattern-type says (literal)
    --producer  WRITE, DESCRIBE and CREATE on topics, WRITE and DESCRIBE on transactional ids; with --idempotent
                IDEMPOTENT_WRITE on the cluster
    --consumer  READ and DESCRIBE on topics, READ on groups

Differs from Kafka's tool: rules are sorted, and questions can be answered on standard input that is not a terminal.
`--bootstrap-controller` and the operation TwoPhaseCommit are not supported."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from jesenska.cli.shared.tool import (
    FAILED,
    Parser,
    add_bootstrap,
    add_output,
    cluster_of,
    print_json,
    require_bootstrap,
    run_async,
    sentence,
    telling,
)
from jesenska.client.administration.admin import Admin
from jesenska.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

_Op, _Type = AclOperation, ResourceType
#: The flags that take names of resources, each with the resource type.
_NAMED: Final = {
    "topic": _Type.TOPIC,
    "group": _Type.GROUP,
    "transactional_id": _Type.TRANSACTIONAL_ID,
    "delegation_token": _Type.DELEGATION_TOKEN,
    "user_principal": _Type.USER,
}
_PRODUCER: Final = {
    _Type.TOPIC: (_Op.WRITE, _Op.DESCRIBE, _Op.CREATE),
    _Type.TRANSACTIONAL_ID: (_Op.WRITE, _Op.DESCRIBE),
}
_CONSUMER: Final = {_Type.TOPIC: (_Op.READ, _Op.DESCRIBE), _Type.GROUP: (_Op.READ,)}

#: The rules to list, add or remove, for each resource pattern. The pattern types ANY and MATCH are allowed only for
#: rules to list or remove.
Wanted = dict[ResourcePattern, list[AclEntry]]


def _parser() -> Parser:
    parser = Parser("kafka-acls", "Lists, adds and removes access rules.")
    add_bootstrap(parser)
    parser.add_argument("--list", action="store_true", help="List the rules of the given resources, or of all.")
    parser.add_argument("--add", action="store_true", help="Add rules.")
    parser.add_argument("--remove", action="store_true", help="Remove rules.")
    for flag, what in (
        ("--topic", "A topic"),
        ("--group", "A group"),
        ("--transactional-id", "A transactional id"),
        ("--delegation-token", "A delegation token"),
        ("--user-principal", "A user as a resource"),
    ):
        parser.add_argument(
            flag, action="append", default=[], metavar="NAME", help=f"{what}, * for all; may be repeated."
        )
    parser.add_argument("--cluster", action="store_true", help="The cluster.")
    parser.add_argument(
        "--resource-pattern-type",
        type=str.upper,
        choices=["ANY", "MATCH", "LITERAL", "PREFIXED"],
        default="LITERAL",
        help="How names are meant: literal or prefixed; to list and remove also any (the name as it is) and match "
        "(all patterns that the name matches) (default: literal).",
    )
    parser.add_argument(
        "--operation", action="append", default=[], metavar="OPERATION", help="An operation (default: All)."
    )
    for kind in ("allow", "deny"):
        parser.add_argument(
            f"--{kind}-principal",
            action="append",
            default=[],
            metavar="TYPE:NAME",
            help=f"Whom to {kind}, as User:anna; User:* for everyone; may be repeated.",
        )
        parser.add_argument(
            f"--{kind}-host",
            action="append",
            default=[],
            metavar="HOST",
            help=f"The address to {kind} them from (default: all); may be repeated.",
        )
    parser.add_argument(
        "--principal", action="append", default=[], metavar="TYPE:NAME", help="List the rules of this user."
    )
    parser.add_argument("--producer", action="store_true", help="What a producer needs on topics.")
    parser.add_argument("--consumer", action="store_true", help="What a consumer needs on topics and groups.")
    parser.add_argument("--idempotent", action="store_true", help="With --producer: let it be idempotent.")
    parser.add_argument("--force", action="store_true", help="Do not ask before rules are removed.")
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    _check(parser, options)
    require_bootstrap(parser, options)
    patterns = _patterns(options)
    if options.list:
        async with cluster_of(options) as cluster, telling("Waiting for the brokers"):
            return await _list(Admin(cluster), options, patterns)
    wanted = _wanted(parser, options, patterns)
    if options.add:
        async with cluster_of(options) as cluster, telling("Waiting for the brokers"):
            return await _add(Admin(cluster), options, wanted)
    filters = _confirmed(options, wanted)
    async with cluster_of(options) as cluster, telling("Waiting for the brokers"):
        return await _remove(Admin(cluster), options, filters)


# --- what is asked ---------------------------------------------------------------------------------------------------


def _check(parser: Parser, options: argparse.Namespace) -> None:
    if sum([options.list, options.add, options.remove]) != 1:
        parser.error("Command must include exactly one action: --list, --add, --remove.")
    _exclude(parser, options, "list", "producer", "consumer", "allow_host", "allow_principal", "deny_host")
    _exclude(parser, options, "list", "deny_principal")
    for role in ("producer", "consumer"):
        _exclude(parser, options, role, "operation", "deny_principal", "deny_host")
    if options.idempotent and not options.producer:
        parser.error("The --idempotent option is only available if --producer is set")
    if options.principal and not options.list:
        parser.error("The --principal option is only available if --list is set")
    if options.add and options.resource_pattern_type in ("ANY", "MATCH"):
        parser.error(
            f"A '--resource-pattern-type' value of '{options.resource_pattern_type}' is not valid when adding acls."
        )
    if options.producer and not options.topic:
        parser.error("With --producer you must specify a --topic")
    if options.consumer and (
        not options.topic
        or not options.group
        or (not options.producer and (options.cluster or options.transactional_id))
    ):
        parser.error(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified."
        )
    for text in [*options.allow_principal, *options.deny_principal, *options.principal]:
        if not all(text.partition(":")):
            parser.error(f"expected a string in format principalType:principalName but got {text}")


def _exclude(parser: Parser, options: argparse.Namespace, name: str, *others: str) -> None:
    for other in others:
        if getattr(options, name) and getattr(options, other):
            parser.error(f'Option "[{name}]" can\'t be used with option "[{other.replace("_", "-")}]"')


def _patterns(options: argparse.Namespace) -> list[ResourcePattern]:
    pattern_type = PatternType[options.resource_pattern_type]
    found = [
        ResourcePattern(kind, name.strip(), pattern_type)
        for flag, kind in _NAMED.items()
        for name in getattr(options, flag)
    ]
    if options.cluster or (options.idempotent and options.producer):
        # There is only one cluster, with a fixed name, so its pattern is always literal.
        found.append(ResourcePattern(_Type.CLUSTER, CLUSTER_NAME))
    return list(dict.fromkeys(found))


def _wanted(parser: Parser, options: argparse.Namespace, patterns: list[ResourcePattern]) -> Wanted:
    if not patterns:
        parser.error(
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>"
        )
    if options.add and not (options.allow_principal or options.deny_principal):
        parser.error("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")
    wanted: Wanted = {}
    if not options.producer and not options.consumer:
        operations = [_operation(text) for text in options.operation] or [_Op.ALL]
        for pattern in patterns:
            _require_fitting(parser, pattern.resource_type, operations)
            wanted[pattern] = _entries(options, operations)
        return wanted
    for is_role, rights in ((options.producer, _PRODUCER), (options.consumer, _CONSUMER)):
        for pattern in patterns if is_role else ():
            given: tuple[AclOperation, ...] = rights.get(pattern.resource_type, ())
            if rights is _PRODUCER and pattern.resource_type is _Type.CLUSTER and options.idempotent:
                given = (_Op.IDEMPOTENT_WRITE,)
            entries = wanted.setdefault(pattern, []) if given else []
            entries += [entry for entry in _entries(options, given) if entry not in entries]
    return wanted


def _operation(text: str) -> AclOperation:
    return AclOperation.of_label(text.strip()) or AclOperation.UNKNOWN


def _require_fitting(parser: Parser, kind: ResourceType, operations: Sequence[AclOperation]) -> None:
    known = (*(item for item in OPERATIONS[kind] if item is not _Op.TWO_PHASE_COMMIT), _Op.ALL)
    if any(item not in known for item in operations):
        parser.error(f"ResourceType {kind.name} only supports operations [{', '.join(item.name for item in known)}]")


def _entries(options: argparse.Namespace, operations: Sequence[AclOperation]) -> list[AclEntry]:
    return [
        AclEntry(principal, host, operation, permission)
        for permission, principals, hosts in (
            (Permission.ALLOW, options.allow_principal, options.allow_host),
            (Permission.DENY, options.deny_principal, options.deny_host),
        )
        for principal in principals
        for host in hosts or [WILDCARD]
        for operation in operations
    ]


def _confirmed(options: argparse.Namespace, wanted: Wanted) -> list[AclFilter]:
    """Returns the filters of the rules to remove. The user has confirmed each removal."""
    filters = []
    for pattern, entries in wanted.items():
        if not entries:
            question = f"Are you sure you want to delete all ACLs for resource filter `{_shown(pattern)}`? (y/n)"
            if _agreed(options, question):
                filters.append(AclFilter(pattern.resource_type, pattern.name, pattern.pattern_type))
            continue
        rules = "\n".join(f"\t{_shown_entry(entry)}" for entry in entries)
        question = (
            f"Are you sure you want to remove ACLs: \n {rules} \n from resource filter `{_shown(pattern)}`? (y/n)"
        )
        if _agreed(options, question):
            filters += [
                AclFilter(pattern.resource_type, pattern.name, pattern.pattern_type, *entry) for entry in entries
            ]
    return filters


def _agreed(options: argparse.Namespace, question: str) -> bool:
    if options.force:
        return True
    print(question, file=sys.stderr if options.output == "json" else sys.stdout, flush=True)
    return sys.stdin.readline().strip().lower() == "y"


# --- what is done ----------------------------------------------------------------------------------------------------


async def _list(admin: Admin, options: argparse.Namespace, patterns: list[ResourcePattern]) -> int:
    filters = [AclFilter(*pattern) for pattern in patterns] or [AclFilter()]
    found: dict[AclBinding, None] = {}
    for wanted in filters:
        found.update(dict.fromkeys(await admin.describe_acls(wanted)))
    bindings = list(found)
    if options.output == "json":
        if options.principal:
            bindings = [binding for binding in bindings if binding.entry.principal in options.principal]
        print_json([_object(binding) for binding in bindings])
        return 0
    if not options.principal:
        _print_all(bindings)
    for principal in options.principal:
        print(f"ACLs for principal `{principal}`")
        _print_all([binding for binding in bindings if binding.entry.principal == principal])
    return 0


def _print_all(bindings: Sequence[AclBinding]) -> None:
    by_pattern: Wanted = {}
    for pattern, entry in bindings:
        by_pattern.setdefault(pattern, []).append(entry)
    for pattern, entries in by_pattern.items():
        print(f"Current ACLs for resource `{_shown(pattern)}`:")
        print("\n".join(f"\t{_shown_entry(entry)}" for entry in entries), end="\n\n")


async def _add(admin: Admin, options: argparse.Namespace, wanted: Wanted) -> int:
    bindings = [AclBinding(pattern, entry) for pattern, entries in wanted.items() for entry in entries]
    if options.output == "text":
        for pattern, entries in wanted.items():
            rules = "\n".join(f"\t{_shown_entry(entry)}" for entry in entries)
            print(f"Adding ACLs for resource `{_shown(pattern)}`: \n {rules}\n")
    errors = await admin.create_acls(bindings)
    if options.output == "json":
        print_json(
            [
                {**_object(binding), "error": None if error is None else sentence(error)}
                for binding, error in zip(bindings, errors, strict=True)
            ]
        )
        return FAILED if any(errors) else 0
    for error in errors:
        if error is not None:
            raise error
    return 0


async def _remove(admin: Admin, options: argparse.Namespace, filters: list[AclFilter]) -> int:
    removed = await admin.delete_acls(filters) if filters else []
    if options.output == "json":
        print_json([_object(binding) for binding in removed])
    return 0


def _shown(pattern: ResourcePattern) -> str:
    kind, name, pattern_type = pattern
    return f"ResourcePattern(resourceType={kind.name}, name={name}, patternType={pattern_type.name})"


def _shown_entry(entry: AclEntry) -> str:
    principal, host, operation, permission = entry
    return f"(principal={principal}, host={host}, operation={operation.name}, permissionType={permission.name})"


def _object(binding: AclBinding) -> dict[str, Any]:
    (kind, name, pattern_type), (principal, host, operation, permission) = binding
    return {
        "resourceType": kind.name,
        "name": name,
        "patternType": pattern_type.name,
        "principal": principal,
        "host": host,
        "operation": operation.name,
        "permissionType": permission.name,
    }


if __name__ == "__main__":
    sys.exit(main())
