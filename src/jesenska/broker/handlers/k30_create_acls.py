"""CreateAcls (key 30), versions 0-3: adds ACLs (KIP-140). Every broker accepts this request. When the answer is sent,
the ACLs apply on this broker; other brokers learn of them from the metadata tree (ZooKeeper's nodes). Each line is
what a version adds:

    0      literal patterns only
    1      prefixed patterns (KIP-290)
    2      compact encoding
    3      user resources

Each ACL is checked separately, and an invalid ACL is answered INVALID_REQUEST: a cluster resource must have the name
kafka-cluster, and no field may be ANY or empty. Adding an ACL that exists is not an error. An ACL whose resource type,
pattern type, operation or permission is UNKNOWN (0) closes the connection, as in Kafka. A broker without an authorizer
answers SECURITY_DISABLED for each ACL."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, InvalidRequestError, shortened
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.acl_requests import NO_AUTHORIZER, binding_of, require_known_types, shown
from jesenska.broker.requests.change_log import log_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.settings.acls_runtime import AclsRuntime
from jesenska.security.acls import AclBinding
from jesenska.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsResponse, CreateAclsResponseResult


@handles(CreateAclsRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: CreateAclsRequest, context: Context) -> Outcome:
    require_known_types(request)
    if uses.acls is None:
        refused = CreateAclsResponseResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return CreateAclsResponse(results=[refused] * len(request.creations))
    return _create(uses.acls, request, context)


async def _create(acls: AclsRuntime, request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    results: list[Exception | None] = []
    wanted: dict[int, AclBinding] = {}
    for number, item in enumerate(request.creations):
        try:
            wanted[number] = binding_of(item)
            results.append(None)
        except InvalidRequestError as error:
            results.append(error)
    try:
        outcomes = await acls.create(list(wanted.values()))
    except Exception as error:
        outcomes = [error] * len(wanted)
    for (number, binding), outcome in zip(wanted.items(), outcomes, strict=True):
        results[number] = outcome
        if outcome is None:
            log_change(context, f"the access rule {shown(binding)} was added")
    return CreateAclsResponse(results=[_result(error) for error in results])


def _result(error: Exception | None) -> CreateAclsResponseResult:
    if error is None:
        return CreateAclsResponseResult(error_message=None)
    refused = as_kafka_error(error)
    return CreateAclsResponseResult(error_code=refused.code, error_message=shortened(refused.message) or None)
