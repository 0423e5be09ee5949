"""The authorizer of a broker, if its settings name one: the access rules are read before clients can connect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jesenska.broker.requests.authorization.access import Authorizer
from jesenska.broker.shared_parts import SharedParts
from jesenska.broker.stages.tree import TreePlace
from jesenska.security.principal import parse_super_users

if TYPE_CHECKING:
    from jesenska.broker.settings.acls_runtime import AclsRuntime


@dataclass(frozen=True, slots=True)
class Authorization:
    """`rules` keeps the access rules, `authorizer` decides by them."""

    rules: AclsRuntime
    authorizer: Authorizer


async def authorization(core: SharedParts, place: TreePlace) -> Authorization | None:
    """The authorizer with its rules; None if everyone may do everything. TreeError, NodeFormatError if the rules
    cannot be read, InvalidConfigError for wrong super.users."""
    config, in_force = core.config, core.in_force
    if not config.string("authorizer.class.name"):
        return None
    # The table knows the messages of every API: a broker without an authorizer starts without it.
    from jesenska.broker.requests.authorization.table import RULES
    from jesenska.broker.settings.acls_runtime import AclsRuntime
    from jesenska.security.acls import Acls

    acls = Acls(
        parse_super_users(config.string("super.users")),
        allow_everyone_if_none=config.boolean("allow.everyone.if.no.acl.found"),
    )
    rules = AclsRuntime(core, place.store, acls, place.home.change_max_bytes)
    await place.until_reached(rules.read)
    return Authorization(
        rules,
        Authorizer(acls, core.view, lambda: in_force.config.boolean("auto.create.topics.enable"), RULES),
    )
