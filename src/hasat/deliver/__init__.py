"""Deliveries: webhooks through an outbox, and every change to NATS JetStream."""

from hasat.deliver.events import Event, publish_event

__all__ = ["Event", "publish_event"]
