"""Kafka Streams' processors in Python: one module for each kind of node, as the test driver runs them."""
