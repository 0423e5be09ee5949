"""Combines the settings with which a broker starts, from three sources:

    strongest   --override name=value          the command line
                KAFKA_NAME=value               the environment, for containers
    weakest     name=value                     the file

A variable's name becomes a setting's name as in Kafka's Docker images: `KAFKA_LOG_DIRS` is `log.dirs`, `__` means `_`
and `___` means `-`. (`KAFKA_CFG_`, the prefix of another image, is accepted as well.) Variables for start scripts are
ignored, and so are the variables that Kubernetes sets for a service named kafka.

Warnings are returned as data, not printed. An unknown name in the file or in a flag is kept, since Kafka's
DescribeConfigs lists unknown names of the file. An unknown name in the environment is only reported, since the
variable may belong to another program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from jesenska.config.properties import parse_properties
from jesenska.config.settings.broker_settings import BROKER_SETTINGS, LISTENER_PREFIX, broker_setting
from jesenska.config.table import Unknown
from jesenska.config.variables import PREFIX

_LAUNCHERS = re.compile(
    r"KAFKA_(HOME|VERSION|SCALA_VERSION|DEBUG|DEBUG_.*|USER|GROUP|BASE_DIR|CONF_FILE|MODE|CLUSTER_ID|KRAFT_CLUSTER_ID|BOOTSTRAP_SERVERS?|CREATE_TOPICS|"
    r"JMX_.*|LOG4J.*|TOOLS_LOG4J.*|.*_OPTS|OPTS|GC_.*|HEAP.*|CERTIFICATE_PASSWORD|CLIENT_.*|ZOOKEEPER_PROTOCOL|ZOOKEEPER_USER|ZOOKEEPER_PASSWORD)\Z"
)
_KUBERNETES = re.compile(r"KAFKA_(.*_)?(SERVICE_(HOST|PORT)(_.*)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_.*)?)\Z")
_URL = re.compile(r"(tcp|udp|sctp)://")


class Origin(Enum):
    """The source from which the value of a setting comes: the file, the environment or a flag."""

    FILE = "file"
    ENVIRONMENT = "environment"
    OVERRIDE = "override"


class OverrideError(ValueError):
    """An `--override` flag that is not name=value. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The combined settings as texts, the source of each, and the names that are not in any table of settings."""

    settings: dict[str, str]
    origins: dict[str, Origin]
    unknown: tuple[Unknown, ...]


def gather(
    file: bytes | str | None = None, environment: Mapping[str, str] | None = None, overrides: Sequence[str] = ()
) -> Gathered:
    """Returns the settings of a file's content, an environment and `name=value` flags. Raises PropertiesError or
    OverrideError if the file or a flag cannot be read."""
    settings: dict[str, str] = {}
    origins: dict[str, Origin] = {}
    unknown: list[Unknown] = []

    def put(name: str, value: str, origin: Origin) -> None:
        settings[name] = value
        origins[name] = origin

    for name, value in parse_properties(file or "").items():
        put(name, value, Origin.FILE)
    for variable, value in sorted((environment or {}).items()):
        mapped = setting_of_variable(variable, value)
        if mapped is None:
            continue
        if broker_setting(mapped) is None and not mapped.startswith(LISTENER_PREFIX):
            unknown.append(Unknown(variable, _variable_of(BROKER_SETTINGS.nearest(mapped))))
        else:
            put(mapped, value, Origin.ENVIRONMENT)
    for flag in overrides:
        name, equals, value = flag.partition("=")
        if not equals or not name.strip():
            raise OverrideError(
                f"--override takes name=value, and {flag!r} is not in that form: write it as in --override "
                "log.dirs=data."
            )
        put(name.strip(), value.strip(), Origin.OVERRIDE)
    named = [name for name in settings if broker_setting(name) is None]
    return Gathered(settings, origins, (*BROKER_SETTINGS.unknown(named), *unknown))


def setting_of_variable(variable: str, value: str) -> str | None:
    """Returns the name of the setting that an environment variable sets; None if the variable does not set one."""
    if not variable.startswith(PREFIX) or _LAUNCHERS.match(variable) or _KUBERNETES.match(variable):
        return None
    if variable.endswith("PORT") and _URL.match(value):
        return None
    rest = variable.removeprefix("KAFKA_CFG_") if variable.startswith("KAFKA_CFG_") else variable.removeprefix(PREFIX)
    if not rest:
        return None
    return re.sub("_+", lambda run: {1: ".", 2: "_", 3: "-"}.get(len(run[0]), run[0]), rest).lower()


def _variable_of(name: str | None) -> str | None:
    if name is None:
        return None
    return PREFIX + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()
