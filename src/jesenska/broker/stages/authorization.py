"""Creates the authorizer of a broker, if its settings name one, and reads the ACLs before clients can connect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jesenska.broker.shared_parts import SharedParts
from jesenska.broker.stages.tree import TreePlace
from jesenska.config.layers import BrokerConfig
from jesenska.security.principal import Principal, parse_super_users

if TYPE_CHECKING:
    from jesenska.broker.requests.authorization.access import Authorizer
    from jesenska.broker.settings.acls_runtime import AclsRuntime


@dataclass(frozen=True, slots=True)
class Authorization:
    """The ACLs of a broker (`rules`), and the authorizer that checks requests with them."""

    rules: AclsRuntime
    authorizer: Authorizer


def super_users_of(config: BrokerConfig) -> frozenset[Principal] | None:
    """Returns the users that may do everything (super.users), or None if there is no authorizer. Raises
    InvalidConfigError if a name is not a principal."""
    if not config.string("authorizer.class.name"):
        return None
    return parse_super_users(config.string("super.users"))


async def authorization(
    core: SharedParts, place: TreePlace, super_users: frozenset[Principal] | None
) -> Authorization | None:
    """Returns the authorizer with its ACLs, or None if there is no authorizer. Raises TreeError or NodeFormatError if
    the ACLs cannot be read."""
    if super_users is None:
        return None
    # Imported here, because the table imports the messages of every API: a broker without an authorizer starts faster.
    from jesenska.broker.requests.authorization.access import Authorizer
    from jesenska.broker.requests.authorization.table import RULES
    from jesenska.broker.settings.acls_runtime import AclsRuntime
    from jesenska.security.acls import Acls

    in_force = core.in_force
    acls = Acls(super_users, allow_everyone_if_none=core.config.boolean("allow.everyone.if.no.acl.found"))
    rules = AclsRuntime(core, place.store, acls, place.home.change_max_bytes)
    await place.until_reached(rules.read)
    return Authorization(
        rules,
        Authorizer(acls, core.view, lambda: in_force.config.boolean("auto.create.topics.enable"), RULES),
    )
