"""Whether what is compiled is what the source says."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1] / "src" / "jesenska"


def changed_since_compiled() -> Path | None:
    """A source that was changed after it was compiled; None if there is none."""
    for compiled in _PACKAGE.rglob("*.so"):
        for suffix in (".py", ".pyx"):
            source = compiled.with_name(compiled.name.split(".")[0] + suffix)
            if source.exists() and source.stat().st_mtime > compiled.stat().st_mtime:
                return source
    return None
