"""Plugins: objects that other installed packages provide. A package names its objects in an entry point group of its
metadata.

    [project.entry-points."jesenska.retention_policies"]
    nights = "our_package.retention:Nights"

A plugin is imported when its name is first requested. It is found only by its entry point, never by a path or a module
name. The library that reads the packages' metadata is also imported only then: it imports many modules, and most
programs use no plugin."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: The group of classes that choose the old segments of a log to delete (`log.retention.RetentionPolicy`).
RETENTION_POLICIES: Final = "jesenska.retention_policies"
#: Objects that check passwords or tokens of a listener's clients (`broker.stages.listener_mechanisms`).
SASL_SERVER_CALLBACKS: Final = "jesenska.sasl_server_callbacks"
#: The name of Kafka's retention policy, which is built in.
DEFAULT_RETENTION_POLICY: Final = "time-and-size"


class PluginError(Exception):
    """Raised if no installed package has a plugin of a given name, or if the plugin's object cannot be made. The
    message is a sentence with the cause and the remedy."""


def plugin_names(group: str) -> list[str]:
    """Returns the names in an entry point group, over all installed packages, sorted."""
    return sorted({entry.name for entry in _entry_points(group)})


@cache
def plugin(group: str, name: str) -> object:
    """Returns the object that the entry point of this name makes when it is called without arguments. Each object is
    made once. Raises PluginError if there is no such entry point, or if its package fails."""
    found = [entry for entry in _entry_points(group) if entry.name == name]
    if not found:
        raise PluginError(
            f"No installed package has {name!r} in its entry point group {group}; installed names: "
            f"{', '.join(plugin_names(group)) or 'none'}."
        )
    try:
        made: object = found[0].load()()
    except Exception as error:
        raise PluginError(
            f"{name!r} of {group} ({found[0].value}) cannot be made: {type(error).__name__}: {error}; mend its package."
        ) from error
    return made


def _entry_points(group: str) -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points

    return entry_points(group=group)
