"""kafka-delegation-tokens: makes, renews, expires and lists delegation tokens. Flags and output lines are those of
Apache Kafka 4.3.1's tool; `--output json` prints objects.

    --create      --max-life-time-period, --owner-principal, --renewer-principal
    --renew       --hmac, --renew-time-period
    --expire      --hmac, --expiry-time-period
    --describe    --owner-principal; without an owner, all tokens that the user may see (Kafka's tool shows none)

An HMAC is a secret: a client that has it logs in as the owner of the token. HMACs are printed in base64. Times are
printed in the machine's time zone, and in JSON as milliseconds since 1970."""

from __future__ import annotations

import argparse
import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from jesenska.base.errors import InvalidConfigError
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    add_output,
    cluster_of,
    print_json,
    require_bootstrap,
    run_async,
    telling,
)
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.token_administration import TokenWithHmac
from jesenska.security.principal import Principal, parse_principal

_ACTIONS = ("create", "renew", "expire", "describe")
_ROW = "{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"
_HEAD = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")


def _parser() -> Parser:
    parser = Parser("kafka-delegation-tokens", "Makes, renews, expires and lists delegation tokens.")
    add_bootstrap(parser)
    parser.add_argument("--create", action="store_true", help="Make a token.")
    parser.add_argument("--renew", action="store_true", help="Let a token expire later.")
    parser.add_argument("--expire", action="store_true", help="Let a token expire earlier, or at once.")
    parser.add_argument("--describe", action="store_true", help="List tokens that you may see, of the given owners.")
    for flag, what in (
        ("--owner-principal", "The user that owns the token, as User:anna; with --describe it may be repeated."),
        ("--renewer-principal", "A user that may renew the token, beside its owner; may be repeated."),
    ):
        parser.add_argument(flag, action="append", default=[], metavar="TYPE:NAME", help=what)
    for flag, what in (
        ("--max-life-time-period", "The longest life of the token in ms; -1 for that of the broker."),
        ("--renew-time-period", "How long the token is valid from now, in ms; -1 for the broker's default."),
        ("--expiry-time-period", "After how many ms the token expires; -1 for at once."),
    ):
        parser.add_argument(flag, type=int, metavar="MS", help=what)
    parser.add_argument("--hmac", help="The HMAC of the token, in base64.")
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    _check(parser, options)
    require_bootstrap(parser, options)
    owners, renewers = _principals(parser, options.owner_principal), _principals(parser, options.renewer_principal)
    mac = _hmac(parser, options.hmac)
    async with cluster_of(options) as cluster, telling("Waiting for the brokers"):
        admin = Admin(cluster)
        if options.create:
            await _create(admin, options, owners[0] if owners else None, renewers)
        elif options.describe:
            await _describe(admin, options, owners)
        elif options.renew:
            _say(options, f"Calling renew token operation with hmac :{options.hmac}", options.renew_time_period)
            _moved(options, "renew", await admin.renew_delegation_token(mac, options.renew_time_period))
        else:
            _say(options, f"Calling expire token operation with hmac :{options.hmac}", options.expiry_time_period)
            _moved(options, "expire", await admin.expire_delegation_token(mac, options.expiry_time_period))
    return 0


def _check(parser: Parser, options: argparse.Namespace) -> None:
    if sum(getattr(options, action) for action in _ACTIONS) != 1:
        parser.error("Command must include exactly one action: --create, --renew, --expire or --describe")
    needed = {
        "create": ("max_life_time_period",),
        "renew": ("hmac", "renew_time_period"),
        "expire": ("hmac", "expiry_time_period"),
        "describe": (),
    }
    for action in _ACTIONS:
        for name in needed[action] if getattr(options, action) else ():
            if getattr(options, name) is None:
                parser.error(f'Missing required argument "[{name.replace("_", "-")}]"')
    if options.create and len(options.owner_principal) > 1:
        parser.error("A token has one owner: give --owner-principal once.")


def _principals(parser: Parser, texts: Sequence[str]) -> list[Principal]:
    try:
        return [parse_principal(text) for text in texts]
    except InvalidConfigError as error:
        parser.error(str(error))


def _hmac(parser: Parser, text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except binascii.Error:
        parser.error("--hmac is not base64: give the HMAC as --create has shown it.")


async def _create(
    admin: Admin, options: argparse.Namespace, owner: Principal | None, renewers: Sequence[Principal]
) -> None:
    shown = ", ".join(map(str, renewers))
    if options.output == "text":
        print(
            f"Calling create token operation with renewers :[{shown}] , max-life-time-period :"
            f"{options.max_life_time_period}"
        )
    made = await admin.create_delegation_token(renewers, owner=owner, max_lifetime_ms=options.max_life_time_period)
    if options.output == "json":
        print_json(_object(made))
        return
    print(f"Created delegation token with tokenId : {made.token.token_id}\n")
    _print_table([made])


async def _describe(admin: Admin, options: argparse.Namespace, owners: Sequence[Principal]) -> None:
    if options.output == "text":
        shown = f"owners: [{', '.join(map(str, owners))}]" if owners else "current user."
        print(f"Calling describe token operation for {shown}")
    found = await admin.describe_delegation_tokens(owners or None)
    if options.output == "json":
        print_json([_object(item) for item in found])
        return
    print(f"Total number of tokens : {len(found)}")
    _print_table(found)


def _say(options: argparse.Namespace, begun: str, period_ms: int) -> None:
    if options.output == "text":
        name = "renew" if options.renew else "expire"
        print(f"{begun} , {name}-time-period :{period_ms}")


def _moved(options: argparse.Namespace, what: str, expires_at_ms: int) -> None:
    if options.output == "json":
        print_json({"expiryTimestamp": expires_at_ms})
    else:
        print(f"Completed {what} operation. New expiry date : {_date(expires_at_ms)}")


def _print_table(found: Sequence[TokenWithHmac]) -> None:
    print(_ROW.format(*_HEAD))
    for token, mac in found:
        print()
        print(
            _ROW.format(
                token.token_id,
                base64.b64encode(mac).decode(),
                str(token.owner),
                str(token.requester),
                f"[{', '.join(map(str, token.renewers))}]",
                _date(token.issued_at_ms),
                _date(token.expires_at_ms),
                _date(token.max_at_ms),
            )
        )


def _date(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000).strftime("%Y-%m-%dT%H:%M")


def _object(found: TokenWithHmac) -> dict[str, Any]:
    token = found.token
    return {
        "tokenId": token.token_id,
        "hmac": base64.b64encode(found.hmac).decode(),
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issued_at_ms,
        "expiryTimestamp": token.expires_at_ms,
        "maxTimestamp": token.max_at_ms,
    }
