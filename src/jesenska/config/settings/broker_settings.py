"""The table of all settings of the broker, the groups of names that mean the same setting in different units of time,
and the settings that may have another value for a single listener.

A listener's own value of a setting is written `listener.name.<name in lower case>.<setting>`. It replaces the general
value for that listener."""

from __future__ import annotations

from jesenska.config.settings.broker_cluster_settings import CLUSTER_SETTINGS
from jesenska.config.settings.broker_coordinator_settings import COORDINATOR_SETTINGS
from jesenska.config.settings.broker_log_settings import LOG_SETTINGS
from jesenska.config.settings.broker_security_settings import SECURITY_SETTINGS
from jesenska.config.settings.broker_server_settings import SERVER_SETTINGS
from jesenska.config.table import Setting, Table

BROKER_SETTINGS = Table(
    "broker", (*SERVER_SETTINGS, *LOG_SETTINGS, *CLUSTER_SETTINGS, *COORDINATOR_SETTINGS, *SECURITY_SETTINGS)
)

LISTENER_PREFIX = "listener.name."

#: The names of one setting in different units of time. The first name that is set counts. `UNIT_MS` gives the
#: milliseconds in a name's unit.
TIME_SYNONYMS: dict[str, tuple[str, ...]] = {
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.minutes": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
UNIT_MS: dict[str, int] = {
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
    "log.roll.hours": 3_600_000,
    "log.roll.jitter.hours": 3_600_000,
}

#: Dynamic settings that may have another value for a single listener, in addition to all settings that begin with
#: `ssl.` or `sasl.`.
PER_LISTENER = frozenset(
    {"max.connections", "max.connection.creation.rate", "principal.builder.class", "connections.max.reauth.ms"}
)


def split_listener_prefix(name: str) -> tuple[str | None, str]:
    """Splits a setting's name into listener and plain name: `listener.name.plaintext.max.connections` gives
    (`plaintext`, `max.connections`). A name without that prefix gives (None, name)."""
    if not name.startswith(LISTENER_PREFIX):
        return None, name
    listener, dot, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    # A SASL mechanism may be between the listener and the setting: listener.name.internal.plain.sasl.jaas.config
    if rest and rest not in BROKER_SETTINGS and "." in rest and rest.partition(".")[2] in BROKER_SETTINGS:
        rest = rest.partition(".")[2]
    return (listener, rest) if dot else (None, name)


def broker_setting(name: str) -> Setting | None:
    """Returns the setting of this name, also if the name begins with a listener's prefix; None if the setting is not
    known."""
    return BROKER_SETTINGS.get(split_listener_prefix(name)[1])
