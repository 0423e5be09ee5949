"""Which variables of the environment are settings of a broker (`sources` says which setting each is), for those who
start a broker that is to be their own: the settings of whoever runs them mean another broker. Imports no tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREFIX: Final = "KAFKA_"


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are no settings of a broker."""
    return {name: value for name, value in environment.items() if not name.startswith(PREFIX)}
