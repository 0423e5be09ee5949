"""What the three requests about access rules have in common on a broker without an authorizer."""

from __future__ import annotations

from jesenska.base.errors import InvalidRequestError

#: What each rule or filter of a request that changes rules is told.
NO_AUTHORIZER = "No Authorizer is configured."
_UNKNOWN = 0


def require_known(*codes: int) -> None:
    """InvalidRequestError where a resource type, pattern type, operation or permission is UNKNOWN: such a request
    cannot be meant."""
    if _UNKNOWN in codes:
        raise InvalidRequestError("a rule or filter has an element of the type UNKNOWN")
