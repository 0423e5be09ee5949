"""The paths of the tree, as Apache Kafka's brokers read and write them in ZooKeeper mode.

/brokers/ids/<id>                                   a broker that is up                       ephemeral
/brokers/topics/<topic>                             replicas of each partition, topic id
/brokers/topics/<topic>/partitions/<n>/state        leader, ISR, epochs
/brokers/jesenska_starts/<id>                       last start on each directory: jesenska's own
/brokers/seqid                                      its version gives broker ids automatically
/controller, /controller_epoch                      the controller (ephemeral), and its epoch
/cluster/id                                         the cluster's id
/config/<topics|brokers|clients|users|ips>/<name>   dynamic settings; `<default>` for all
/config/changes/config_change_<n>                   a change of one of them                   sequential
/admin/delete_topics/<topic>                        a topic to delete
/admin/reassign_partitions, /admin/preferred_replica_election                                 work for the controller
/admin/jesenska_lost_brokers                        brokers that never come back: jesenska's own; for the controller
/isr_change_notification/isr_change_<n>             changes of ISRs                           sequential
/log_dir_event_notification/log_dir_event_<n>       a broker has lost a directory             sequential
/latest_producer_id_block                           the last block of producer ids that was claimed
/feature                                            features of the cluster
/kafka-acl/<Type>/<name>                            access rules of one resource, or of all (`*`)
/kafka-acl-extended/prefixed/<Type>/<name>          access rules of resources whose names begin so
/kafka-acl-changes/acl_changes_<n>                  says that one of the first changed        sequential
/kafka-acl-extended-changes/acl_changes_<n>         says that one of the second changed       sequential
/consumers/...                                      groups of the 0.8 era"""

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

#: Nodes that a broker creates at its start if they are missing, parents first: those that Kafka 3.9 creates.
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

#: The types of resources that have access rules, as they stand in paths.
ACL_TYPES = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")
#: Nodes that a broker with an authorizer makes beside the others.
ACL_PATHS = (
    ACLS,
    ACL_CHANGES,
    *(f"{ACLS}/{kind}" for kind in ACL_TYPES),
    "/kafka-acl-extended",
    PREFIXED_ACLS,
    PREFIXED_ACL_CHANGES,
    *(f"{PREFIXED_ACLS}/{kind}" for kind in ACL_TYPES),
)


#: Nodes that a broker with delegation tokens makes beside the others.
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
    """Returns the path of an entity's settings. `entity_type` is `topics`, `brokers`, `clients`, `users` or `ips`;
    names of users and clients are already sanitized (`sanitize`)."""
    return f"{CONFIG}/{entity_type}/{name}"


def topic_config(name: str) -> str:
    return config("topics", name)


def broker_config(broker_id: int | None) -> str:
    """Returns the path of the settings of one broker; None: of every broker."""
    return config("brokers", DEFAULT_ENTITY if broker_id is None else str(broker_id))


#: Kinds of settings that every broker needs, and those of clients.
ENTITY_KINDS: Final = ("topics", "brokers")
CLIENT_KINDS: Final = ("users", "clients", "ips")


def is_entity(entity: str) -> bool:
    """True for a path below /config that has settings: `topics/<name>`, `users/<name>/clients/<name>`, …"""
    kind, _, name = entity.partition("/")
    return kind in (*ENTITY_KINDS, *CLIENT_KINDS) and name != "" and ("/" not in name or is_client_entity(entity))


def is_client_entity(entity: str) -> bool:
    """True for `users/<name>/clients/<name>`: the settings of a user's client."""
    parts = entity.split("/")
    return len(parts) == 4 and parts[0] == "users" and parts[2] == "clients"


def client_entity(names: Mapping[str, str | None]) -> str:
    """Returns the part after /config/ of the path that has the settings of a user, a client id, both, or an address.
    `names` by kind (`CLIENT_KINDS`); the name None stands for the default."""

    def written(kind: str, name: str | None) -> str:
        if name is None:
            return DEFAULT_ENTITY
        return name if kind == "ips" else sanitize(name)

    return "/".join(f"{kind}/{written(kind, names[kind])}" for kind in CLIENT_KINDS if kind in names)


def names_of_client_entity(entity: str) -> dict[str, str | None]:
    """Reverses `client_entity`."""
    pieces = entity.split("/")
    return {
        kind: None if name == DEFAULT_ENTITY else name if kind == "ips" else desanitize(name)
        for kind, name in zip(pieces[::2], pieces[1::2], strict=True)
    }


def sanitize(name: str) -> str:
    """Returns a user's or client's name in the form for a path: URL-encoded, `*` included, blanks as %20."""
    return quote(name, safe="-_.").replace("~", "%7E")


def desanitize(name: str) -> str:
    """Reverses `sanitize`."""
    return unquote(name)
