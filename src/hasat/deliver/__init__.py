"""Those who want to be told: webhooks through an outbox, and every change to NATS JetStream.

Knows no source by name. Touches PostgreSQL (schema deliver), the endpoints and NATS.
"""

from hasat.deliver.event import Event, announce

__all__ = ["Event", "announce"]
