"""Parts that other packages add: objects that they name in an entry point group of their package's metadata.

    [project.entry-points."jesenska.retention_policies"]
    nights = "our_package.retention:Nights"

A part is imported when its name is first asked for, and never looked for by a path or a name of a module. The reader
of the packages' metadata is imported only then, too: it imports many modules, and most programs ask for no part."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Classes that decide which old segments of a log go (`log.retention.RetentionPolicy`).
RETENTION_POLICIES: Final = "jesenska.retention_policies"
#: Objects that check passwords or tokens of a listener's clients (`broker.stages.listener_mechanisms`).
SASL_SERVER_CALLBACKS: Final = "jesenska.sasl_server_callbacks"
#: Kafka's policy, which needs no installed package.
DEFAULT_RETENTION_POLICY: Final = "time-and-size"


class PluginError(Exception):
    """No installed package has a part of this name, or it cannot be made; the text is a sentence with the cause and
    the remedy."""


def plugin_names(group: str) -> list[str]:
    """The names that installed packages give in a group, in order."""
    return sorted({entry.name for entry in _entry_points(group)})


@cache
def plugin(group: str, name: str) -> object:
    """The object that the entry point of this name returns when called without arguments, made once; PluginError if
    there is none, or if its package fails."""
    found = [entry for entry in _entry_points(group) if entry.name == name]
    if not found:
        raise PluginError(
            f"No installed package has {name!r} among its {group}; there are: "
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
