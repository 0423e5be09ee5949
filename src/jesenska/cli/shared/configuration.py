"""Makes a broker's configuration for the command line, from a file, the environment and overrides. Warnings are logged
for settings that are unknown or have no effect."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.config.layers import BrokerConfig
from jesenska.config.properties import PropertiesError
from jesenska.config.safety import StartRefused, refuse_unsafe
from jesenska.config.settings.broker_settings import broker_setting
from jesenska.config.sources import OverrideError, gather

logger = logging.getLogger(__name__)


#: For each setting, its older names. If an older name is set, the default of the newer setting is not used.
_SAID_OTHERWISE = {"listeners": ("port", "host.name"), "log.dirs": ("log.dir",), "broker.id": ("node.id",)}


def broker_config(
    file: str | None = None,
    defaults: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    *,
    warns: bool = True,
) -> BrokerConfig:
    """Returns the configuration with which a broker starts. `flags` have precedence over `overrides`, `overrides` over
    the environment, the environment over the file, and the file over `defaults`. If `warns` is False, unknown settings
    and settings without effect are not reported. Raises JesenskaError with one sentence for a file that cannot be
    read, a value that is not valid, or an unsafe combination of settings."""
    content = None
    if file is not None:
        try:
            content = Path(file).read_bytes()
        except OSError as error:
            raise JesenskaError(
                f"The configuration file {file} cannot be read ({error.strerror}): name one that exists."
            ) from error
    try:
        gathered = gather(content, os.environ if environment is None else environment, overrides)
        if content is not None and all(broker_setting(name) is None for name in gathered.settings):
            raise JesenskaError(
                f"The configuration file {file} sets nothing that a broker knows: name a server.properties "
                f"(`jesenska init` writes one)."
            )
        for unknown in gathered.unknown if warns else ():
            logger.warning("%s", unknown)
        kept = {
            name: value
            for name, value in (defaults or {}).items()
            if not any(other in gathered.settings for other in _SAID_OTHERWISE.get(name, ()))
        }
        config = BrokerConfig({**kept, **gathered.settings, **(flags or {})})
        refuse_unsafe(config)
    except PropertiesError as error:
        raise JesenskaError(
            f"The configuration file {file} is not in the format of a property file: {error}"
        ) from error
    except (OverrideError, StartRefused) as error:
        raise JesenskaError(str(error)) from error
    for setting in config.unused() if warns else ():
        if setting.name in gathered.settings:
            logger.warning("%s is stored, but has no effect yet: %s", setting.name, setting.reason)
    return config
