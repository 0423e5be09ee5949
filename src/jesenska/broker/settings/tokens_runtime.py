"""Reads and changes the delegation tokens of a broker in the metadata tree (ZooKeeper's nodes), for the state machine
`controller.tokens`."""

from __future__ import annotations

import uuid

from jesenska.broker.effects_runtime import EffectsRuntime
from jesenska.broker.shared_parts import SharedParts
from jesenska.controller.effects import Answer, Effect
from jesenska.controller.events import ChangeToken, CreateToken, ExpireTokens, ReadTokens
from jesenska.controller.tokens import TokenChanges
from jesenska.metadata.store import Store
from jesenska.security.delegation_tokens import DelegationToken, DelegationTokens


class TokensRuntime(EffectsRuntime):
    """Runs the state machine of one broker's delegation tokens. `tokens` has the current tokens."""

    def __init__(
        self,
        core: SharedParts,
        store: Store,
        tokens: DelegationTokens,
        change_max_bytes: int | None,
        check_interval_ms: int,
    ) -> None:
        super().__init__(core, store, TokenChanges(core.broker_id, tokens, core.config), change_max_bytes)
        self.tokens = tokens
        self._clock = core.clock
        self._new_uuid = core.machine.new_uuid
        self._check_seconds = check_interval_ms / 1000
        self._checked_at = core.clock.monotonic()

    def now_ms(self) -> int:
        """Returns the wall-clock time in ms."""
        return self._clock.now_ms()

    def new_uuid(self) -> uuid.UUID:
        """Returns a random id for a new delegation token."""
        return self._new_uuid()

    async def read(self) -> None:
        """Reads all tokens. Raises TreeError if the metadata tree cannot be reached."""
        await self.ask(ReadTokens)

    async def create(self, new: DelegationToken) -> None:
        """Writes a new delegation token to the metadata tree (ZooKeeper's nodes)."""
        await self.ask(lambda token: CreateToken(token, new))

    async def set_expiry(self, token_id: str, expires_at_ms: int | None) -> None:
        """Writes the time at which a token expires. None removes the token. Raises DelegationTokenNotFoundError if the
        token is unknown."""
        await self.ask(lambda token: ChangeToken(token, token_id, expires_at_ms))

    def remove_expired(self) -> None:
        """Removes expired tokens, if delegation.token.expiry.check.interval.ms have passed since the last time. The
        controller calls it about once a second."""
        now = self._clock.monotonic()
        if now - self._checked_at >= self._check_seconds:
            self._checked_at = now
            self.submit(ExpireTokens(self._clock.now_ms()))

    def _do(self, effect: Effect) -> None:
        assert isinstance(effect, Answer)
        self._answer(effect)
