"""The admin client: all administrative calls in one class. The other modules of this package have its base classes,
one for each kind of call.

Every call returns results by name, with an error for each item that failed. If the request failed as a whole, its
error is raised."""

from __future__ import annotations

from jesenska.client.administration.acl_administration import AclAdministration
from jesenska.client.administration.config_administration import ConfigAdministration
from jesenska.client.administration.feature_administration import FeatureAdministration
from jesenska.client.administration.group_administration import GroupAdministration
from jesenska.client.administration.log_directory_administration import LogDirectoryAdministration
from jesenska.client.administration.quota_administration import QuotaAdministration
from jesenska.client.administration.reassignment_administration import ReassignmentAdministration
from jesenska.client.administration.token_administration import TokenAdministration
from jesenska.client.administration.topic_administration import TopicAdministration
from jesenska.client.administration.transaction_administration import TransactionAdministration
from jesenska.client.administration.user_administration import UserAdministration


class Admin(
    TopicAdministration,
    ConfigAdministration,
    LogDirectoryAdministration,
    GroupAdministration,
    TransactionAdministration,
    FeatureAdministration,
    AclAdministration,
    QuotaAdministration,
    TokenAdministration,
    UserAdministration,
    ReassignmentAdministration,
):
    """The admin client of one cluster: topics, reassignments, settings, log directories, groups, transactions,
    features, access rules (ACLs), quotas, delegation tokens, passwords of users."""
