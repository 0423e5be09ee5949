"""`jesenska settings [NAME]`: prints the settings of brokers, topics and clients with their meaning and effect, as in
docs/settings.md."""

from __future__ import annotations

import argparse

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.tool import print_json
from jesenska.config.documentation import effect_of
from jesenska.config.settings.broker_settings import BROKER_SETTINGS
from jesenska.config.settings.client_settings import ADMIN_SETTINGS, CONSUMER_SETTINGS, PRODUCER_SETTINGS
from jesenska.config.settings.topic_settings import TOPIC_SETTINGS
from jesenska.config.table import Setting, Table, value_text

_TABLES: tuple[tuple[str, Table], ...] = (
    ("topic", TOPIC_SETTINGS),
    ("broker", BROKER_SETTINGS),
    ("producer", PRODUCER_SETTINGS),
    ("consumer", CONSUMER_SETTINGS),
    ("admin client", ADMIN_SETTINGS),
)


def add_settings(settings: argparse.ArgumentParser) -> None:
    settings.add_argument(
        "name", nargs="?", metavar="NAME", help="A setting's name, or a part of names; all without it."
    )


def settings(options: argparse.Namespace) -> int:
    """Prints the setting with exactly this name, or all settings whose names contain the word."""
    word = options.name or ""
    exact = [(kind, table[word]) for kind, table in _TABLES if word in table]
    found = exact or [
        (kind, setting) for kind, table in _TABLES for setting in table if word in setting.name and not setting.internal
    ]
    if not found:
        nearest = next((near for _, table in _TABLES if (near := table.nearest(word)) is not None), None)
        raise JesenskaError(
            f"No setting is called "
            f"{word}{f': did you mean {nearest}?' if nearest else ', and none has that in its name.'}"
        )
    found.sort(key=lambda item: (item[1].name, item[0]))
    if options.output == "json":
        print_json([_row(kind, setting) for kind, setting in found])
        return 0
    for kind, setting in found:
        default = value_text(setting.default)
        print(
            f"{setting.name} ({kind}{f', default {default}' if default else ''})\n    {setting.doc}\n    "
            f"{effect_of(setting)}"
        )
    return 0


def _row(kind: str, setting: Setting) -> dict[str, object]:
    return {
        "name": setting.name,
        "of": kind,
        "default": value_text(setting.default),
        "what": setting.doc,
        "effect": effect_of(setting),
    }
