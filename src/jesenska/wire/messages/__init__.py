"""Kafka's requests and responses. Each API key has one file."""
