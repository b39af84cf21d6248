-- Something happened.
INSERT INTO deliver.event (kind, severity, summary, payload)
VALUES (%(kind)s, %(severity)s, %(summary)s, %(payload)s)
