"""Clients of others on secured listeners, at this broker and at Apache Kafka: `cells.py` says what is compared."""
