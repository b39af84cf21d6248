-- Something happened: now, unless it is known when.
INSERT INTO deliver.event (kind, severity, summary, payload, at)
VALUES (%(kind)s, %(severity)s, %(summary)s, %(payload)s, coalesce(%(at)s, clock_timestamp()))
