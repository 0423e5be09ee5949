"""Which releases of PySpark a session takes."""

from __future__ import annotations

import pyspark
import pytest

from jesenska.base.errors import JesenskaError
from jesenska.pipeline.spark.session import require_pyspark, session


@pytest.mark.parametrize("release", ["3.5.6", "4.0.0", "4.1.2"])
def test_a_release_that_is_too_old_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", release)
    with pytest.raises(
        JesenskaError,
        match=rf'PySpark {release} is installed.* PySpark 4\.2 and newer.*pip install --upgrade "pyspark>=4\.2"',
    ):
        session()


@pytest.mark.parametrize("release", ["4.2.0", "4.2.0.dev1", "4.10.0", "5.0.0"])
def test_later_releases_are_taken(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", release)
    require_pyspark()
