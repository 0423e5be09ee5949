"""The broker settings that the transaction coordinator uses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The broker's settings for transactions. The defaults are Kafka's."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    #: How often transactions are checked for timeouts, in milliseconds.
    abort_interval_ms: int = 10_000
    #: How often transactional ids are checked for expiry, in milliseconds.
    remove_interval_ms: int = 3_600_000
    two_phase_commit: bool = False
