-- name: add_event
-- Add an event; without a time it happened now.
INSERT INTO deliver.event (kind, severity, summary, payload, at)
VALUES (%(kind)s, %(severity)s, %(summary)s, %(payload)s, coalesce(%(at)s, clock_timestamp()))

-- name: behind
-- The datasets with changes that are not known to be published.
SELECT h.dataset
  FROM feed.head AS h
  LEFT JOIN deliver.position AS p ON p.sink = 'nats' AND p.dataset = h.dataset
 WHERE h.version IS NOT NULL
   AND (p.epoch, p.seq) IS DISTINCT FROM (h.epoch, h.seq)
 ORDER BY h.dataset

-- name: give_up_removed
-- Turn expired deliveries to removed endpoints into dead letters.
UPDATE deliver.delivery
   SET state = 'dead', settled_at = clock_timestamp(),
       last_error = %(error)s, last_error_data = NULL
 WHERE state = 'waiting' AND endpoint <> ALL (%(endpoints)s::text[]) AND channel IS NULL
   AND waiting_since + %(max_age)s < clock_timestamp()

-- name: delivered
-- Record that the endpoint accepted the delivery.
UPDATE deliver.delivery
   SET state = 'delivered', settled_at = clock_timestamp(), last_status = %(status)s,
       last_error = NULL, last_error_data = NULL
 WHERE id = %(id)s AND state = 'waiting'

-- name: delivery_counts
-- The number of deliveries by endpoint and state, and the age of the oldest waiting one; those of the
-- watch lists together, whose names are private to their owners.
SELECT CASE WHEN watchlist THEN 'watchlists' ELSE endpoint END AS endpoint,
       count(*) FILTER (WHERE state = 'waiting') AS waiting,
       count(*) FILTER (WHERE state = 'delivered') AS delivered,
       count(*) FILTER (WHERE state = 'dead') AS dead,
       coalesce(extract(epoch FROM clock_timestamp()
           - min(waiting_since) FILTER (WHERE state = 'waiting')), 0)::float8 AS oldest_seconds
  FROM (SELECT *, starts_with(endpoint, 'watchlist:') AS watchlist FROM deliver.delivery) AS d
 GROUP BY 1
 ORDER BY 1

-- name: failed
-- Record a failed attempt: the delivery is retried after a pause or becomes a dead letter.
WITH judged AS (
    SELECT id, %(final)s
               OR attempts + 1 >= %(max_attempts)s
               OR waiting_since + %(max_age)s < clock_timestamp() AS over
      FROM deliver.delivery
     WHERE id = %(id)s AND state = 'waiting'
       FOR UPDATE
)
UPDATE deliver.delivery AS d
   SET attempts = d.attempts + 1,
       last_status = %(status)s,
       last_error = %(error)s,
       last_error_data = %(error_data)s,
       next_at = clock_timestamp() + make_interval(secs => %(pause)s),
       state = CASE WHEN judged.over THEN 'dead' ELSE 'waiting' END,
       settled_at = CASE WHEN judged.over THEN clock_timestamp() END
  FROM judged
 WHERE d.id = judged.id
RETURNING d.state

-- name: delete_expired
-- Delete expired events and their deliveries, except those that are waiting.
DELETE FROM deliver.event AS e
 WHERE at < clock_timestamp() - make_interval(days => %(days)s)
   AND handed_out
   AND NOT EXISTS (SELECT FROM deliver.delivery AS d WHERE d.event = e.id AND d.state = 'waiting')

-- name: create_deliveries
-- Create a delivery of every new event for each endpoint that was subscribed when it happened.
-- A second process waits here for the first, so deliveries are numbered in one order.
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

-- name: lease_hold
-- Take a lease that is free, expired or already held by this process.
INSERT INTO deliver.lease AS l (name, holder, until)
VALUES (%(name)s, %(holder)s, clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, until = excluded.until
 WHERE l.holder = excluded.holder OR l.until < clock_timestamp()

-- name: list_deliveries
-- Deliveries, newest first.
SELECT d.id, e.message_id, d.endpoint, e.kind, e.severity, e.summary, e.payload, e.at, d.state,
       d.attempts, d.next_at, d.settled_at, d.last_status, d.last_error,
       d.last_error_data
  FROM deliver.delivery AS d
  JOIN deliver.event AS e ON e.id = d.event
 WHERE (%(id)s::bigint IS NULL OR d.id = %(id)s)
   AND (%(endpoint)s::text IS NULL OR d.endpoint = %(endpoint)s)
   AND (%(state)s::text IS NULL OR d.state = %(state)s)
   AND (%(before)s::bigint IS NULL OR d.id < %(before)s)
   AND (%(owner)s::text IS NULL OR e.owner = %(owner)s)
 ORDER BY d.id DESC
 LIMIT %(limit)s

-- name: new_versions
-- Versions that were not announced yet, oldest first.
SELECT v.dataset, v.version, v.epoch, v.seq_before, v.seq, v.added, v.modified, v.removed,
       v.records, encode(v.digest, 'hex') AS digest, v.committed_at,
       CASE WHEN v.seq - v.seq_before BETWEEN 1 AND %(max_keys)s THEN
           (SELECT json_agg(json_build_object('key', c.key, 'changeType',
                                (ARRAY['added', 'modified', 'removed'])[c.kind]) ORDER BY c.seq)
              FROM feed.change AS c
             WHERE c.dataset = v.dataset AND c.seq > v.seq_before AND c.seq <= v.seq)
       END AS keys
  FROM deliver.seen_version AS s
  JOIN feed.version_dataset AS v ON v.dataset = s.dataset AND v.version > s.version
 ORDER BY v.version, v.dataset
 LIMIT 1000

-- name: next_delivery
-- An endpoint's oldest waiting delivery, if it is due: none overtakes another.
SELECT d.id, e.message_id, e.kind, e.severity, e.summary, e.payload, e.at, d.attempts
  FROM deliver.event AS e
  JOIN (SELECT * FROM deliver.delivery
         WHERE endpoint = %(endpoint)s AND state = 'waiting'
         ORDER BY id
         LIMIT 1) AS d ON d.event = e.id
 WHERE d.next_at <= clock_timestamp()

-- name: renew_subscriptions
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

-- name: replay
-- Let settled deliveries wait again under their old numbers, before all newer ones.
UPDATE deliver.delivery
   SET state = 'waiting', settled_at = NULL, attempts = 0,
       waiting_since = clock_timestamp(), next_at = clock_timestamp()
 WHERE state <> 'waiting'
   AND CASE WHEN %(ids)s::bigint[] IS NULL THEN state = 'dead' ELSE id = ANY (%(ids)s) END
   AND (%(endpoint)s::text IS NULL OR endpoint = %(endpoint)s)
RETURNING id

-- name: save_failure
-- Record that publishing failed: of one dataset, or of all that are behind. Not while another process
-- publishes: then the failure is this process's own.
INSERT INTO deliver.sink_failure AS f (sink, dataset, error)
SELECT 'nats', h.dataset, %(error)s
  FROM feed.head AS h
  LEFT JOIN deliver.position AS p ON p.sink = 'nats' AND p.dataset = h.dataset
 WHERE h.version IS NOT NULL
   AND (p.epoch, p.seq) IS DISTINCT FROM (h.epoch, h.seq)
   AND h.dataset = coalesce(%(dataset)s, h.dataset)
   AND NOT EXISTS (
       SELECT FROM deliver.lease
        WHERE name = 'nats' AND holder <> %(holder)s AND until > clock_timestamp())
 ORDER BY h.dataset
ON CONFLICT (sink, dataset) DO UPDATE
   SET error = excluded.error, at = excluded.at, attempts = f.attempts + 1

-- name: save_position
-- Save the published position of a dataset.
INSERT INTO deliver.position AS p (sink, dataset, epoch, seq)
VALUES ('nats', %(dataset)s, %(epoch)s, %(seq)s)
ON CONFLICT (sink, dataset) DO UPDATE
   SET epoch = excluded.epoch, seq = excluded.seq, at = clock_timestamp()

-- name: add_seen_datasets
-- Give every dataset that has a version a position. A new one begins before the first version that
-- a subscriber may receive, not at the newest: that one is not announced yet.
INSERT INTO deliver.seen_version (dataset, version)
SELECT h.dataset, coalesce(
           (SELECT max(v.version)
              FROM feed.version_dataset AS v
             WHERE v.dataset = h.dataset AND v.committed_at < earliest.at), 0)
  FROM feed.head AS h
 CROSS JOIN (SELECT coalesce(min(since), clock_timestamp()) - interval '1 minute' AS at
               FROM deliver.subscription
              WHERE kind = 'DatasetChanged' AND ended_at IS NULL) AS earliest
 WHERE h.version IS NOT NULL
ON CONFLICT DO NOTHING

-- name: sink_seen
-- A worker that publishes to NATS runs.
INSERT INTO deliver.sink (name) VALUES ('nats')
ON CONFLICT (name) DO UPDATE SET seen_at = clock_timestamp()

-- name: stream_states
-- How many changes each dataset's stream is behind, since when, and the error if publishing fails.
-- After a new epoch or a rewound database, every change that the feed still has is to be published.
SELECT h.dataset, h.seq - s.published AS lag,
       CASE WHEN s.behind THEN greatest(0, extract(epoch FROM clock_timestamp() - coalesce(
           (SELECT c.changed_at
              FROM feed.change AS c
             WHERE c.dataset = h.dataset AND c.seq > s.published
             ORDER BY c.seq
             LIMIT 1), h.committed_at)))::float8 ELSE 0 END AS lag_seconds,
       CASE WHEN s.behind THEN f.error END AS error,
       CASE WHEN s.behind THEN f.since END AS failing_since
  FROM feed.head AS h
  LEFT JOIN deliver.position AS p ON p.sink = 'nats' AND p.dataset = h.dataset
  LEFT JOIN deliver.sink_failure AS f ON f.sink = 'nats' AND f.dataset = h.dataset
 CROSS JOIN LATERAL (
     SELECT CASE WHEN p.epoch = h.epoch AND p.seq <= h.seq THEN p.seq ELSE h.floor END AS published,
            (p.epoch, p.seq) IS DISTINCT FROM (h.epoch, h.seq) AS behind) AS s
 WHERE h.version IS NOT NULL
   AND (%(configured)s OR EXISTS (
       SELECT FROM deliver.sink
        WHERE name = 'nats' AND seen_at > clock_timestamp() - interval '10 minutes'))
 ORDER BY h.dataset

-- name: subscribe
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
       last_error = %(error)s, last_error_data = NULL
  FROM begun
  JOIN deliver.event AS e ON e.kind = begun.kind
 WHERE d.event = e.id AND d.endpoint = begun.endpoint AND d.state = 'waiting'

-- name: unseen_versions
-- Return whether a dataset has an unseen version; runs every second, so it locks nothing.
SELECT EXISTS (
    SELECT FROM feed.head AS h
      LEFT JOIN deliver.seen_version AS s ON s.dataset = h.dataset
     WHERE h.version IS NOT NULL AND h.version IS DISTINCT FROM s.version
)
