"""Connections that never finish their TLS handshake or their login end by the broker's time limits, and harm nobody.
With the real limits, and 2,000 of each kind:

    python -m tests.processes.fuzz.logins.unfinished"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.fuzz.logins import short_limits
from tests.processes.fuzz.logins.unfinished import Limits, besiege
from tests.profiles import rounds

CONNECTIONS = rounds(quick=100, ci=300, everything=2_000)
_SLOWEST_P99_MS = 250.0
_GROWTH_MAX_KB_EACH = 150.0

pytestmark = pytest.mark.timeout(180)


def test_handshakes_and_logins_that_do_not_end_are_ended(tmp_path: Path) -> None:
    limits = Limits(short_limits.HANDSHAKE_SECONDS, short_limits.LOGIN_SECONDS, short_limits.__name__)
    found = besiege(tmp_path, CONNECTIONS, limits)
    print("\n" + "\n".join(found.lines()))
    assert found.left == 0
    assert found.descriptors[1] >= found.descriptors[0] + CONNECTIONS
    assert found.descriptors[2] <= found.descriptors[0]
    assert found.tracebacks == 0
    assert found.grown_mb * 1024 < _GROWTH_MAX_KB_EACH * 2 * CONNECTIONS
    assert found.besieged.figures["written p99"] < _SLOWEST_P99_MS
    assert found.besieged.figures["read p99"] < _SLOWEST_P99_MS
