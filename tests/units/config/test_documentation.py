from __future__ import annotations

from pathlib import Path

from jesenska.config.documentation import page


def test_the_page_of_settings_is_the_one_that_the_tables_give() -> None:
    written = Path(__file__).parents[3] / "docs" / "settings.md"
    assert written.read_text(encoding="utf-8") == page(), "run script/settings-doc"
