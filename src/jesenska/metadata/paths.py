"""The paths of the metadata tree (ZooKeeper's nodes), as Apache Kafka's brokers read and write them in ZooKeeper mode.

/brokers/ids/<id>                                   a running broker                               ephemeral
/brokers/topics/<topic>                             replicas of each partition, topic id
/brokers/topics/<topic>/partitions/<n>/state        leader, ISR, epochs
/brokers/jesenska_starts/<id>                       the broker's last start on each log directory; only jesenska's
/brokers/seqid                                      its version is the source of automatic broker ids
/controller, /controller_epoch                      the controller (ephemeral), and its epoch
/cluster/id                                         the cluster's id
/config/<topics|brokers|clients|users|ips>/<name>   dynamic settings; `<default>` for all names
/config/changes/config_change_<n>                   announces a change of settings                 sequential
/admin/delete_topics/<topic>                        a topic to delete
/admin/reassign_partitions                          reassignments that the controller must do
/admin/preferred_replica_election                   elections that the controller must do
/admin/jesenska_lost_brokers                        brokers that never come back, for the controller; only jesenska's
/isr_change_notification/isr_change_<n>             announces changes of ISRs                      sequential
/log_dir_event_notification/log_dir_event_<n>       a broker has lost a log directory              sequential
/latest_producer_id_block                           the last block of producer ids that was claimed
/feature                                            features of the cluster
/kafka-acl/<Type>/<name>                            ACLs of one resource, or of all (`*`)
/kafka-acl-extended/prefixed/<Type>/<name>          ACLs of all resources whose names begin with <name>
/kafka-acl-changes/acl_changes_<n>                  announces a change below /kafka-acl            sequential
/kafka-acl-extended-changes/acl_changes_<n>         announces a change below /kafka-acl-extended   sequential
/consumers/...                                      consumer groups of Kafka 0.8
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
BROKER_STARTS = "/brokers/jesenska_starts"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
LOST_BROKERS = "/admin/jesenska_lost_brokers"
CONSUMERS = "/consumers"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
ACLS = "/kafka-acl"
ACL_CHANGES = "/kafka-acl-changes"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"
PREFIXED_ACL_CHANGES = "/kafka-acl-extended-changes"
TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"  # noqa: S105

DEFAULT_ENTITY = "<default>"

#: The nodes that a broker creates at its start if they are missing, parents first. Kafka 3.9 creates the same nodes.
PERSISTENT_PATHS = (
    CONSUMERS,
    "/brokers",
    BROKER_IDS,
    TOPICS,
    CONFIG,
    CONFIG_CHANGES,
    "/admin",
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    "/cluster",
)

#: The types of resources that have ACLs, as they are written in paths.
ACL_TYPES = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")
#: Further nodes that a broker with an authorizer creates at its start if they are missing.
ACL_PATHS = (
    ACLS,
    ACL_CHANGES,
    *(f"{ACLS}/{kind}" for kind in ACL_TYPES),
    "/kafka-acl-extended",
    PREFIXED_ACLS,
    PREFIXED_ACL_CHANGES,
    *(f"{PREFIXED_ACLS}/{kind}" for kind in ACL_TYPES),
)


#: Further nodes that a broker with delegation tokens creates at its start if they are missing.
TOKEN_PATHS = ("/delegation_token", TOKEN_CHANGES, TOKENS)


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def broker_starts(broker_id: int) -> str:
    return f"{BROKER_STARTS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(topic_name: str) -> str:
    return f"{TOPICS}/{topic_name}/partitions"


def partition(topic_name: str, number: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{number}"


def partition_state(topic_name: str, number: int) -> str:
    return f"{TOPICS}/{topic_name}/partitions/{number}/state"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def config(entity_type: str, name: str) -> str:
    """Returns the path of the settings of a topic, broker, client, user or IP address. `entity_type` is `topics`,
    `brokers`, `clients`, `users` or `ips`. The names of users and clients must already be sanitized (`sanitize`)."""
    return f"{CONFIG}/{entity_type}/{name}"


def topic_config(name: str) -> str:
    return config("topics", name)


def broker_config(broker_id: int | None) -> str:
    """Returns the path of one broker's dynamic settings; for None, of the settings that apply to every broker."""
    return config("brokers", DEFAULT_ENTITY if broker_id is None else str(broker_id))


#: The kinds of settings that every broker reads, and the kinds of client quotas.
ENTITY_KINDS: Final = ("topics", "brokers")
CLIENT_KINDS: Final = ("users", "clients", "ips")


def is_entity(entity: str) -> bool:
    """Returns True for the path (without /config/) of settings, such as `topics/<name>` or
    `users/<name>/clients/<name>`."""
    kind, _, name = entity.partition("/")
    return kind in (*ENTITY_KINDS, *CLIENT_KINDS) and name != "" and ("/" not in name or is_client_entity(entity))


def is_client_entity(entity: str) -> bool:
    """Returns True for `users/<name>/clients/<name>`: the settings of one client id of a user."""
    parts = entity.split("/")
    return len(parts) == 4 and parts[0] == "users" and parts[2] == "clients"


def client_entity(names: Mapping[str, str | None]) -> str:
    """Returns the path (without /config/) of the settings of a user, of a client id, of both, or of an IP address.
    `names` gives the name for each kind of `CLIENT_KINDS`; the name None means the default."""

    def written(kind: str, name: str | None) -> str:
        if name is None:
            return DEFAULT_ENTITY
        return name if kind == "ips" else sanitize(name)

    return "/".join(f"{kind}/{written(kind, names[kind])}" for kind in CLIENT_KINDS if kind in names)


def names_of_client_entity(entity: str) -> dict[str, str | None]:
    """Returns the names by kind from a path that `client_entity` has made."""
    pieces = entity.split("/")
    return {
        kind: None if name == DEFAULT_ENTITY else name if kind == "ips" else desanitize(name)
        for kind, name in zip(pieces[::2], pieces[1::2], strict=True)
    }


def sanitize(name: str) -> str:
    """Returns a user's or client's name encoded for a path: URL-encoded, including `*`, with spaces as %20."""
    return quote(name, safe="-_.").replace("~", "%7E")


def desanitize(name: str) -> str:
    """Returns the name that `sanitize` has encoded."""
    return unquote(name)
