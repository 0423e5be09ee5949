"""Logs each change that a client has requested, at INFO: the change and the client."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from jesenska.broker.controlling.controller_client import TOPIC_RESOURCE
from jesenska.broker.requests.connection import Context

logger = logging.getLogger(__name__)

#: The maximum number of characters of a client id that are logged: a client id can be as long as a request.
_CLIENT_ID_MAX = 100


def log_change(context: Context, what: str) -> None:
    """Logs a change that the request of `context` has made; `what` describes the change. The client id is logged with
    escapes, so that it cannot begin a new line."""
    client = ascii((context.client_id or "")[:_CLIENT_ID_MAX])
    logger.info("%s, as client %s at %s has asked", what, client, context.connection.client_host)


def log_settings_change(context: Context, resource_type: int, name: str, changed: Iterable[str]) -> None:
    """Logs a change of the settings of a topic or a broker. Only the names of the settings are logged, because their
    values can be secrets."""
    whose = f"topic {name}" if resource_type == TOPIC_RESOURCE else f"broker {name}" if name else "every broker"
    log_change(context, f"settings of {whose} were changed ({', '.join(changed) or 'all have their defaults'})")
