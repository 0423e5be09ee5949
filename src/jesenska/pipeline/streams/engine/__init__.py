"""Kafka Streams' processors in Python, as the test driver runs them. Each module has the processors for one kind of
node of the logical plan."""
