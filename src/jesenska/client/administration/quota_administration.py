"""Administers the quotas of users, client ids and IP addresses (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jesenska.client.administration.administration import Administration, require
from jesenska.wire.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
)
from jesenska.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
    AlterClientQuotasResponse,
)

#: The ways in which a component of a filter can match an entity's name: one exact name, the default, or any name.
EXACT, DEFAULT, ANY = 0, 1, 2


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """The quotas of one entity, by quota name. `entity` has the entity's names by kind (user, client-id, ip); the name
    None means the default."""

    entity: Mapping[str, str | None]
    quotas: Mapping[str, float]


class QuotaAdministration(Administration):
    """Methods for quotas, of the class `Admin`."""

    async def describe_client_quotas(
        self, wanted: Mapping[str, tuple[int, str | None]], *, strict: bool = False
    ) -> list[EntityQuotas]:
        """Returns the quotas of the entities that match a filter. `wanted` has for each kind (user, client-id, ip)
        EXACT with a name, or DEFAULT or ANY with None. With `strict` only entities that have exactly these kinds
        match."""
        components = [
            DescribeClientQuotasRequestComponent(entity_type=kind, match_type=match_type, match=name)
            for kind, (match_type, name) in wanted.items()
        ]
        answer = await self.cluster.ask_any(
            DescribeClientQuotasRequest(components=components, strict=strict), DescribeClientQuotasResponse
        )
        require(answer.error_code, answer.error_message)
        return [
            EntityQuotas(
                {part.entity_type: part.entity_name for part in entry.entity},
                {item.key: item.value for item in entry.values},
            )
            for entry in answer.entries or ()
        ]

    async def alter_client_quotas(
        self,
        changes: Sequence[tuple[Mapping[str, str | None], Mapping[str, float | None]]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Sets quotas of entities; the value None removes a quota. Raises the error of the first entity whose change
        is refused."""
        entries = [
            AlterClientQuotasRequestEntry(
                entity=[
                    AlterClientQuotasRequestEntity(entity_type=kind, entity_name=name) for kind, name in entity.items()
                ],
                ops=[
                    AlterClientQuotasRequestOp(key=key, value=0.0 if value is None else value, remove=value is None)
                    for key, value in quotas.items()
                ],
            )
            for entity, quotas in changes
        ]
        answer = await self.cluster.ask_controller(
            AlterClientQuotasRequest(entries=entries, validate_only=validate_only), AlterClientQuotasResponse
        )
        for entry in answer.entries:
            require(entry.error_code, entry.error_message)
