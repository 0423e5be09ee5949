"""The Streams API: topologies that are described once and run by several implementations."""
