"""The common parts of the three requests about access rules on a broker without an authorizer."""

from __future__ import annotations

from jesenska.base.errors import InvalidRequestError

#: The answer for each rule or filter of a request that changes rules.
NO_AUTHORIZER = "No Authorizer is configured."
_UNKNOWN = 0


def require_known(*codes: int) -> None:
    """InvalidRequestError if a resource type, pattern type, operation or permission is UNKNOWN."""
    if _UNKNOWN in codes:
        raise InvalidRequestError("a rule or filter has an element of the type UNKNOWN")
