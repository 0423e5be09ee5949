"""Mistakes with users and ACLs that are made on purpose, for a simulation of users whose rights change to find.

`JESENSKA_PURE=1 PYTHONHASHSEED=0 python -m tests.processes.testing.planted_access_bugs NAME [FIRST [SEEDS]]` prints
the first seed that fails, and why. Exit code 1 if none of so many does, 2 if one fails with other words than it
should."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable
from typing import Any

from jesenska.broker.effects_runtime import EffectsRuntime
from jesenska.broker.requests.authentication import Authentication, State
from jesenska.broker.requests.authorization.access import Access
from jesenska.broker.server import Broker
from jesenska.controller import acls as acl_changes
from jesenska.controller.events import EVERYTHING
from jesenska.metadata import paths
from jesenska.security.acls import Acls, Permission, _Prefixes
from jesenska.testing.simulation.access import access_simulation
from tests.processes.testing.planted_search import first_and_seeds, first_failure


def a_remembered_right_outlives_its_acl() -> None:
    """A connection remembers the topics that it may use, and does not forget them when the ACLs change."""

    def remembered(self: Access, allowed: set[str], operation: Any, topic: str) -> bool:
        if topic in allowed:
            return True
        if not self._acls.allows(self.principal, self.host, operation, 2, topic):  # type: ignore[arg-type]
            return False
        allowed.add(topic)
        return True

    Access._remembered = remembered  # type: ignore[method-assign]


def a_decision_outlives_its_acl() -> None:
    """The decisions of the authorizer are not forgotten when the ACLs change."""
    put = Acls.put

    def keep(self: Acls, pattern: Any, entries: Any) -> None:
        decisions = dict(self._decisions)
        put(self, pattern, entries)
        self._decisions.update(decisions)

    Acls.put = keep  # type: ignore[method-assign]


def denials_are_ignored() -> None:
    put = Acls.put
    Acls.put = lambda self, pattern, entries: put(  # type: ignore[method-assign]
        self, pattern, [entry for entry in entries if entry.permission is not Permission.DENY]
    )


def a_prefix_matches_shorter_names() -> None:
    """A prefixed pattern also matches a name that is a prefix of the pattern."""

    def of(self: _Prefixes, name: str) -> Any:
        return [
            entries for prefix, entries in self.entries.items() if name.startswith(prefix) or prefix.startswith(name)
        ]

    _Prefixes.of = of  # type: ignore[method-assign]


def a_session_has_no_end() -> None:
    """A client whose session has ended need not log in again."""

    def takes(self: Authentication, key: int) -> bool:
        return self.state is State.DONE or before(self, key)

    before = Authentication.takes
    Authentication.takes = takes  # type: ignore[method-assign]


def a_deleted_user_can_log_in() -> None:
    """A broker does not learn that a user's password was deleted."""
    credential = Broker._credential_of
    known: dict[tuple[int, str, str], Any] = {}

    def kept(self: Broker, mechanism: str, user: str) -> Any:
        found = credential(self, mechanism, user)
        return known.setdefault((id(self), mechanism, user), found) if found else known.get((id(self), mechanism, user))

    Broker._credential_of = kept  # type: ignore[method-assign]


def clients_come_before_the_last_look() -> None:
    """A starting broker serves clients before it has read the changes that were made during its start."""

    async def not_at_all(self: EffectsRuntime) -> None:
        return

    EffectsRuntime.until_idle = not_at_all  # type: ignore[method-assign]


def nothing_is_read_after_an_outage() -> None:
    """A broker with a new session at the tree reads only what is announced from then on."""
    Broker._tree_state = lambda self, state: None  # type: ignore[method-assign]


def prefixed_changes_are_not_heard() -> None:
    """Brokers do not look at the nodes that announce changes of prefixed patterns."""
    look = acl_changes.AclChanges._look

    def look_at_literals(self: Any, event: Any) -> Any:
        if event.at == paths.PREFIXED_ACL_CHANGES:
            return
        yield from look(self, event)

    acl_changes.AclChanges._look = look_at_literals  # type: ignore[method-assign]


def a_deletion_uses_the_copy_of_the_broker() -> None:
    """A broker that was not told of an ACL does not find it for deletion."""

    def nothing(self: Any, directory: str) -> Any:
        yield from ()

    def look(self: Any, event: Any) -> Any:
        if event.at == EVERYTHING:
            yield from self._everything()
        else:
            yield from changes_at(self, event.at)

    changes_at = acl_changes.AclChanges._changes_at
    acl_changes.AclChanges._changes_at = nothing  # type: ignore[method-assign]
    acl_changes.AclChanges._look = look  # type: ignore[method-assign]


_NO_ACL, _NO_PASSWORD = "which no ACL has allowed", "without a password"
#: Each mistake, and words that the simulation must report for it.
BUGS: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    plant.__name__: (plant, words)
    for plant, words in (
        (a_remembered_right_outlives_its_acl, (_NO_ACL,)),
        (a_decision_outlives_its_acl, (_NO_ACL, "do not agree")),
        (denials_are_ignored, (_NO_ACL,)),
        (a_prefix_matches_shorter_names, (_NO_ACL,)),
        (a_session_has_no_end, (_NO_PASSWORD,)),
        (a_deleted_user_can_log_in, (_NO_PASSWORD,)),
        (clients_come_before_the_last_look, (_NO_ACL, _NO_PASSWORD)),
        (nothing_is_read_after_an_outage, (_NO_ACL, _NO_PASSWORD, "do not agree")),
        (prefixed_changes_are_not_heard, (_NO_ACL,)),
        (a_deletion_uses_the_copy_of_the_broker, (_NO_ACL,)),
    )
}


def search(name: str, first: int, seeds: int) -> int:
    """Makes the mistake and searches for a seed that finds it. Returns the exit code."""
    plant, words = BUGS[name]
    plant()
    gc.freeze()
    return first_failure(access_simulation, words, first, seeds)


def main() -> int:
    logging.disable(logging.CRITICAL)
    return search(sys.argv[1], *first_and_seeds())


if __name__ == "__main__":
    sys.exit(main())
