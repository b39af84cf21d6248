-- Create a delivery of every new event for each endpoint that was subscribed when it happened.
-- Whoever comes second waits here for the first, so deliveries are numbered in one order.
WITH new AS (
    SELECT id, kind, at FROM deliver.event WHERE NOT handed_out ORDER BY id FOR UPDATE
), wanted AS (
    INSERT INTO deliver.delivery (event, endpoint)
    SELECT new.id, s.endpoint
      FROM new
      JOIN deliver.subscription AS s
        ON s.kind = new.kind AND new.at >= s.since AND (s.ended_at IS NULL OR new.at < s.ended_at)
     ORDER BY new.id
    ON CONFLICT DO NOTHING
)
UPDATE deliver.event AS e SET handed_out = true FROM new WHERE e.id = new.id
