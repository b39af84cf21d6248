"""Watch lists: stored sets of keys, or filters, whose changes go to channels through the outbox."""
