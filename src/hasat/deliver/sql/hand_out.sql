-- Give every endpoint its delivery of the events it wants. Whoever comes second waits here for the
-- first, so deliveries are numbered in one order.
WITH new AS (
    SELECT id, kind FROM deliver.event WHERE NOT handed_out ORDER BY id FOR UPDATE
), wanted AS (
    INSERT INTO deliver.delivery (event, endpoint)
    SELECT new.id, w.endpoint
      FROM new
      JOIN unnest(%(endpoints)s::text[], %(kinds)s::text[]) AS w (endpoint, kind)
        ON w.kind = new.kind
     ORDER BY new.id
    ON CONFLICT DO NOTHING
)
UPDATE deliver.event AS e SET handed_out = true FROM new WHERE e.id = new.id
