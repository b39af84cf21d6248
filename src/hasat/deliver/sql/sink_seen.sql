-- A worker that publishes to NATS runs.
INSERT INTO deliver.sink (name) VALUES ('nats')
ON CONFLICT (name) DO UPDATE SET seen_at = clock_timestamp()
