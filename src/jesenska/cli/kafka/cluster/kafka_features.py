"""kafka-features: prints the features of the cluster, and changes their levels (KIP-584). Commands, flags and output
lines are those of Apache Kafka 4.3.1's tool; `--output json` prints objects.

    describe               the levels that brokers support, and the level in force
    upgrade, downgrade     --feature NAME=LEVEL, which may be repeated; --dry-run; --unsafe (downgrade only)
    disable                --feature NAME: a downgrade to 0
    feature-dependencies   --feature NAME=LEVEL: no feature here has dependencies

    exit 0                 done
         1                 a change was refused, with the reason on stdout, or the arguments are wrong

`version-mapping`, `--metadata`, `--release-version` and `--bootstrap-controller` are not supported: they only apply to
metadata versions and controllers of KRaft."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence

from jesenska.base.errors import JesenskaError, KafkaError
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    add_commands,
    add_output,
    cluster_of,
    print_json,
    require_bootstrap,
    run_async,
    sentence,
    telling,
)
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.feature_administration import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE

_LEVEL_MAX = 32767
#: The texts for a change that was made, for a change that can be made (--dry-run), and for a change that is refused.
_SAID = {
    "upgrade": ("was upgraded to {}", "can be upgraded to {}", "upgrade {} to {}"),
    "downgrade": ("was downgraded to {}", "can be downgraded to {}", "downgrade {} to {}"),
    "disable": ("was disabled", "can be disabled", "disable {}"),
}

Work = Callable[[Admin, argparse.Namespace], Awaitable[int]]


def _parser() -> Parser:
    parser = Parser("kafka-features", "Shows the features of the cluster, and changes their levels.")
    add_bootstrap(parser)
    add_output(parser)
    command = add_commands(parser)
    one = command("describe", "Describe the features that are in force.", _describe)
    one.add_argument("--node-id", type=int, metavar="N", help="The broker that is asked (default: any).")
    for name, what in (("upgrade", "Raise the level of features."), ("downgrade", "Lower the level of features.")):
        one = command(name, what, _change)
        one.add_argument(
            "--feature",
            action="append",
            default=[],
            metavar="NAME=LEVEL",
            help="A feature and its new level; may be repeated.",
        )
        _add_ways(one, downward=name == "downgrade")
    one = command("disable", "Disable features: a downgrade to 0.", _change)
    one.add_argument("--feature", action="append", default=[], metavar="NAME", help="A feature; may be repeated.")
    _add_ways(one, downward=True)
    one = command("feature-dependencies", "Look up what a level of a feature depends on.", _depend)
    one.add_argument(
        "--feature",
        action="append",
        default=[],
        required=True,
        metavar="NAME=LEVEL",
        help="A feature and its level; may be repeated.",
    )
    return parser


def _add_ways(parser: argparse.ArgumentParser, *, downward: bool) -> None:
    parser.set_defaults(unsafe=False)
    if downward:
        parser.add_argument("--unsafe", action="store_true", help="Also where metadata would be lost.")
    parser.add_argument("--dry-run", action="store_true", help="Say whether it can be done, and do nothing.")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    require_bootstrap(parser, options)
    async with cluster_of(options) as cluster, telling("Waiting for the brokers"):
        work: Work = options.work
        return await work(Admin(cluster), options)


async def _describe(admin: Admin, options: argparse.Namespace) -> int:
    found = await admin.describe_features(options.node_id)
    if options.output == "json":
        keys = ("feature", "supportedMinVersion", "supportedMaxVersion", "finalizedVersionLevel", "epoch")
        print_json(
            [
                dict(zip(keys, (item.name, item.lowest, item.highest, item.level, found.epoch), strict=True))
                for item in found.features
            ]
        )
        return 0
    for item in found.features:
        levels = (
            f"SupportedMinVersion: {item.lowest:<15}  SupportedMaxVersion: {item.highest:<15}  FinalizedVersionLevel: "
            f"{item.level:<15}"
        )
        print(f"Feature: {item.name:<40}  {levels}  Epoch: {found.epoch if found.epoch >= 0 else '-'}")
    return 0


async def _change(admin: Admin, options: argparse.Namespace) -> int:
    disables = options.command == "disable"
    if not options.feature:
        raise JesenskaError(f"You must specify at least one feature to {options.command}.")
    levels: dict[str, int] = {}
    for text in options.feature:
        name, level = (text, 0) if disables else _level(text)
        if name in levels:
            raise JesenskaError(f"Feature {name} was specified more than once.")
        levels[name] = level
    way = UPGRADE if options.command == "upgrade" else UNSAFE_DOWNGRADE if options.unsafe else SAFE_DOWNGRADE
    error: KafkaError | None = None
    try:
        await admin.update_features(levels, way, validate_only=options.dry_run)
    except KafkaError as refused:
        if refused.retriable:
            raise
        error = refused
    if options.output == "json":
        print_json(
            [
                {"feature": name, "level": level, "error": None if error is None else sentence(error)}
                for name, level in sorted(levels.items())
            ]
        )
        return int(error is not None)
    done, possible, refused_text = _SAID[options.command]
    for name, level in sorted(levels.items()):
        if error is not None:
            print(f"Could not {refused_text.format(name, level)}. {sentence(error)}")
        else:
            print(f"{name} {(possible if options.dry_run else done).format(level)}.")
    if error is not None:
        print(f"{len(levels)} out of {len(levels)} operation(s) failed.", file=sys.stderr)
    return int(error is not None)


async def _depend(admin: Admin, options: argparse.Namespace) -> int:
    known = {item.name: item for item in (await admin.describe_features()).features}
    wanted = [_level(text) for text in options.feature]
    for name, level in wanted:
        if name not in known:
            raise JesenskaError(f"Unknown feature: {name}. The cluster has {', '.join(known) or 'none'}.")
        if not known[name].lowest <= level <= known[name].highest:
            raise JesenskaError(
                f"Feature {name} has no level {level}: its levels are {known[name].lowest} to {known[name].highest}."
            )
    if options.output == "json":
        print_json([{"feature": name, "level": level, "dependencies": []} for name, level in wanted])
    else:
        for name, level in wanted:
            print(f"{name}={level} has no dependencies.")
    return 0


def _level(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not equals:
        raise JesenskaError(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        number = int(level)
    except ValueError:
        number = _LEVEL_MAX + 1
    if not -_LEVEL_MAX - 1 <= number <= _LEVEL_MAX:
        raise JesenskaError(
            f"Can't parse feature=level string {text}: {level} is no level, which is a whole number up to {_LEVEL_MAX}."
        )
    return name.strip(), number


if __name__ == "__main__":
    sys.exit(main())
