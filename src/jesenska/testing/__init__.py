"""For tests of whatever uses Kafka: a real broker in a process of its own, on a port that the system chose."""

from jesenska.testing.broker import BrokerProcess

__all__ = ["BrokerProcess"]
