"""Kafka Streams' processors in Python, as the test driver runs them: one module for each kind of plan node."""
