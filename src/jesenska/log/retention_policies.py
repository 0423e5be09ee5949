"""Finds the retention policies that topics may name in `jesenska.retention.policy`. The policies of jesenska and of
other packages are registered in one entry point group. An entry point refers to a class or function that returns a
`retention.RetentionPolicy` when called without arguments."""

from __future__ import annotations

from typing import cast

from jesenska.base.plugins import DEFAULT_RETENTION_POLICY, RETENTION_POLICIES, plugin
from jesenska.log.retention import TIME_AND_SIZE, RetentionPolicy


def policy_named(name: str) -> RetentionPolicy:
    """Returns the retention policy of this name. Raises PluginError if no installed package has such a policy."""
    return (
        TIME_AND_SIZE if name == DEFAULT_RETENTION_POLICY else cast(RetentionPolicy, plugin(RETENTION_POLICIES, name))
    )
