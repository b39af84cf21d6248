-- Subscriptions of a process that starts: new ones count from now, those that are no longer in its
-- settings end. What still waits from before an endpoint was removed is not sent when it returns.
WITH wanted AS (
    SELECT endpoint, kind FROM unnest(%(endpoints)s::text[], %(kinds)s::text[]) AS w (endpoint, kind)
), ended AS (
    UPDATE deliver.subscription AS s
       SET ended_at = clock_timestamp()
     WHERE s.ended_at IS NULL
       AND NOT EXISTS (SELECT FROM wanted AS w WHERE (w.endpoint, w.kind) = (s.endpoint, s.kind))
), begun AS (
    INSERT INTO deliver.subscription AS s (endpoint, kind)
    SELECT endpoint, kind FROM wanted ORDER BY endpoint, kind
    ON CONFLICT (endpoint, kind) DO UPDATE
       SET since = excluded.since, seen_at = excluded.seen_at, ended_at = NULL
     WHERE s.ended_at IS NOT NULL
    RETURNING s.endpoint, s.kind
)
UPDATE deliver.delivery AS d
   SET state = 'dead', settled_at = clock_timestamp(),
       last_error = 'The endpoint was removed from the settings and added again later.'
  FROM begun
  JOIN deliver.event AS e ON e.kind = begun.kind
 WHERE d.event = e.id AND d.endpoint = begun.endpoint AND d.state = 'waiting'
