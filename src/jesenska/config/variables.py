"""Recognises the environment variables that are settings of a broker (`sources` maps each to its setting). For
programs that start their own broker: the variables of their environment are meant for another broker. Imports no
tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "KAFKA_"


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that are not settings of a broker."""
    return {name: value for name, value in environment.items() if not name.startswith(PREFIX)}
