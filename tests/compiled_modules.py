"""Whether what was compiled is what the source says."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1] / "src" / "jesenska"


def changed_after_it_was_compiled() -> Path | None:
    """A source that is newer than what was compiled of it; None if there is none."""
    for compiled in _PACKAGE.rglob("*.so"):
        for suffix in (".py", ".pyx"):
            source = compiled.with_name(compiled.name.split(".")[0] + suffix)
            if source.exists() and source.stat().st_mtime > compiled.stat().st_mtime:
                return source
    return None
