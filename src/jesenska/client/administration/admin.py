"""Every administrative call in one class; its parts are in the files of this room, one for each family.

Every call returns results by name, with the error of each one that failed, and raises the error of a request that
failed as a whole."""

from __future__ import annotations

from jesenska.client.administration.acl_administration import AclAdministration
from jesenska.client.administration.config_administration import ConfigAdministration
from jesenska.client.administration.feature_administration import FeatureAdministration
from jesenska.client.administration.group_administration import GroupAdministration
from jesenska.client.administration.log_directory_administration import LogDirectoryAdministration
from jesenska.client.administration.topic_administration import TopicAdministration
from jesenska.client.administration.transaction_administration import TransactionAdministration


class Admin(
    TopicAdministration,
    ConfigAdministration,
    LogDirectoryAdministration,
    GroupAdministration,
    TransactionAdministration,
    FeatureAdministration,
    AclAdministration,
):
    """Administration of one cluster: topics, settings, log directories, groups, transactions, features, access
    rules."""
