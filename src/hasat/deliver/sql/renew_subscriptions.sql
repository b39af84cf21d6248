-- A running process has these subscriptions in its settings. One that another process ended
-- meanwhile, because it starts with other settings, goes on without a gap; one that no process has
-- had for a minute ends.
WITH wanted AS (
    SELECT endpoint, kind FROM unnest(%(endpoints)s::text[], %(kinds)s::text[]) AS w (endpoint, kind)
), mine AS (
    SELECT s.endpoint, s.kind, s.since, s.ended_at
      FROM deliver.subscription AS s
      JOIN wanted USING (endpoint, kind)
     ORDER BY s.endpoint, s.kind
       FOR UPDATE OF s
), renewed AS (
    UPDATE deliver.subscription AS s
       SET seen_at = clock_timestamp(), ended_at = NULL
      FROM mine
     WHERE (s.endpoint, s.kind) = (mine.endpoint, mine.kind)
), ended AS (
    UPDATE deliver.subscription AS s
       SET ended_at = clock_timestamp()
     WHERE s.ended_at IS NULL
       AND s.seen_at < clock_timestamp() - interval '1 minute'
       AND NOT EXISTS (SELECT FROM wanted AS w WHERE (w.endpoint, w.kind) = (s.endpoint, s.kind))
)
-- An event may have been handed out by a process that did not see the subscription.
INSERT INTO deliver.delivery (event, endpoint)
SELECT e.id, mine.endpoint
  FROM mine
  JOIN deliver.event AS e ON e.kind = mine.kind AND e.handed_out
   AND e.at >= mine.since
   AND e.at >= coalesce(mine.ended_at, clock_timestamp() - interval '1 minute')
 ORDER BY e.id
ON CONFLICT DO NOTHING
