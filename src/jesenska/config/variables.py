"""Recognises the environment variables that set a broker's settings (`sources` finds the setting of each). It is for
programs that start their own broker: the variables of their environment are meant for another broker. Imports no
tables of settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "KAFKA_"


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without the variables that set a broker's settings."""
    return {name: value for name, value in environment.items() if not name.startswith(PREFIX)}
