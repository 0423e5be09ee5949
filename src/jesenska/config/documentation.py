"""Writes docs/settings.md from the tables of settings: `python -m jesenska.config.documentation docs/settings.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from jesenska.config.settings.broker_settings import BROKER_SETTINGS
from jesenska.config.settings.client_settings import ADMIN_SETTINGS, CONSUMER_SETTINGS, PRODUCER_SETTINGS
from jesenska.config.settings.topic_settings import TOPIC_SETTINGS
from jesenska.config.table import Effect, Setting, value_text

_HEAD = """# Settings

Generated from the tables in `src/jesenska/config` by `script/settings-doc`. *Works*: has its effect. *Stored*:
kept, shown, warned about once at the start; no effect yet. *No meaning*: accepted, has nothing to act on here.
"""


def effect_of(setting: Setting) -> str:
    """Returns the text for the documentation's column "effect": "works", or the reason why the setting has no
    effect."""
    return {
        Effect.WORKS: "works",
        Effect.STORED: f"stored: {setting.reason}",
        Effect.MEANINGLESS: f"no meaning: {setting.reason}",
    }[setting.effect]


def _rows(settings: Iterable[Setting]) -> list[str]:
    found = []
    for setting in sorted(settings, key=lambda item: item.name):
        if setting.internal and setting.release != "jesenska":
            continue
        default = value_text(setting.default)
        found.append(
            f"| `{setting.name}` | {f'`{default}`' if default else ''} | {setting.doc} | {effect_of(setting)} |".replace(  # noqa: E501
                "`|`", "`&#124;`"
            )
        )
    return found


def page() -> str:
    """Returns docs/settings.md as Markdown text."""
    head = ["| name | default | what it is | effect |", "|---|---|---|---|"]
    parts = [
        _HEAD,
        "## Topics",
        "",
        *head,
        *_rows(TOPIC_SETTINGS),
        "",
        "## Brokers",
        "",
        *head,
        *_rows(BROKER_SETTINGS),
        "",
    ]
    for title, table in (
        ("Producers", PRODUCER_SETTINGS),
        ("Consumers", CONSUMER_SETTINGS),
        ("Administration", ADMIN_SETTINGS),
    ):
        parts += [f"## {title}", "", *head, *_rows(table), ""]
    return "\n".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
