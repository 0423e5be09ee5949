"""Describes subscriptions to clients' metrics (resource type CLIENT_METRICS, 16, KIP-714) for DescribeConfigs. A
subscription of any name has the default settings.

Changing a subscription is not supported. This broker asks no client for metrics (GetTelemetrySubscriptions is not
served), so a subscription would have no effect."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from jesenska.base.errors import InvalidRequestError
from jesenska.config.layers import Described, Source

CLIENT_METRICS_RESOURCE: Final = 16
#: The numbers of the types of settings (INT and LIST) in DescribeConfigs.
_INT, _LIST = 3, 7
_SETTINGS: Final = (
    ("interval.ms", "300000", _INT, "How often a client sends its metrics, ms."),
    ("match", "", _LIST, "Which clients are meant: pairs of an attribute and a regular expression. Empty: all."),
    ("metrics", "", _LIST, "Prefixes of the names of the metrics to send. Empty: none."),
)


def describe_client_metrics(name: str, keys: Collection[str] | None) -> list[Described]:
    """Returns the settings of the subscription `name`: the settings named in `keys`, or all settings if `keys` is None
    or empty. Raises InvalidRequestError if `name` is empty."""
    if not name:
        raise InvalidRequestError("Client metrics subscription name must not be empty")
    return [
        Described(key, value, Source.DEFAULT, read_only=False, sensitive=False, kind=kind, doc=doc, synonyms=())
        for key, value, kind, doc in _SETTINGS
        if not keys or key in keys
    ]
