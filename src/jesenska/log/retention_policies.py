"""Finds the retention policies that topics may name in `jesenska.retention.policy`. All policies, those of this
package and those of other packages, are registered in one entry point group. An entry point refers to a class, or a
function, that is called without arguments and returns a `retention.RetentionPolicy`."""

from __future__ import annotations

from typing import cast

from jesenska.base.plugins import DEFAULT_RETENTION_POLICY, RETENTION_POLICIES, plugin
from jesenska.log.retention import TIME_AND_SIZE, RetentionPolicy


def policy_named(name: str) -> RetentionPolicy:
    """Returns the policy of this name; PluginError if no installed package has such a policy (or no longer has it)."""
    return (
        TIME_AND_SIZE if name == DEFAULT_RETENTION_POLICY else cast(RetentionPolicy, plugin(RETENTION_POLICIES, name))
    )
