"""Recognises the environment variables that set a broker's settings (`config.sources` finds the setting of each
variable). It is for programs that start their own broker, because the variables of their environment are meant for
another broker. This module imports no tables of settings, so that its import is fast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "KAFKA_"


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without the variables that set a broker's settings."""
    return {name: value for name, value in environment.items() if not name.startswith(PREFIX)}
