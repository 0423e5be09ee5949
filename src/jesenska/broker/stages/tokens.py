"""Creates the runtime for the delegation tokens of a broker, if delegation.token.secret.key is set. Reads the tokens
before clients can connect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska.broker.shared_parts import SharedParts
from jesenska.broker.stages.tree import TreePlace
from jesenska.config.layers import BrokerConfig, token_secret_of

if TYPE_CHECKING:
    from jesenska.broker.settings.tokens_runtime import TokensRuntime


async def delegation_tokens(core: SharedParts, place: TreePlace, config: BrokerConfig) -> TokensRuntime | None:
    """Returns the runtime for the delegation tokens, or None if the broker does not serve delegation tokens. Raises
    TreeError if the tokens cannot be read."""
    secret = token_secret_of(config)
    if secret is None:
        return None
    # Imported here and not at the top: most brokers have no delegation tokens, and start faster without these modules.
    from jesenska.broker.settings.tokens_runtime import TokensRuntime
    from jesenska.security.delegation_tokens import DelegationTokens, Lifetimes

    lifetimes = Lifetimes(
        config.integer("delegation.token.expiry.time.ms"), config.integer("delegation.token.max.lifetime.ms")
    )
    tokens = DelegationTokens(secret, lifetimes, core.machine.secret_bytes)
    runtime = TokensRuntime(
        core,
        place.store,
        tokens,
        place.home.change_max_bytes,
        config.integer("delegation.token.expiry.check.interval.ms"),
    )
    await place.until_reached(runtime.read)
    return runtime
