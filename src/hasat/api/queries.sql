-- name: delete_full_buckets
-- Delete full buckets; a missing bucket counts as full.
DELETE FROM serve.token_bucket
WHERE name IN (
    SELECT name FROM serve.token_bucket
    WHERE filled_at < clock_timestamp() - interval '2 minutes'
    FOR UPDATE SKIP LOCKED
);

-- name: dataset_totals
-- The records and changes of every dataset of some sources, and when a run last committed it.
SELECT source, dataset, records, seq, committed_at
  FROM feed.head
 WHERE source = ANY (%(sources)s) AND committed_at IS NOT NULL
 ORDER BY dataset;

-- name: waiting_holds
-- The runs of some sources that need approval.
SELECT s.source, (SELECT count(*) FROM feed.hold AS h WHERE h.source = s.source AND h.state = 'waiting')
  FROM unnest(%(sources)s::text[]) AS s (source);

-- name: create_key
-- Create a key, of which only the digest is stored; no row if `made_from` is itself a login.
INSERT INTO serve.api_key (id, name, digest, scope, per_minute, expires_at, made_from, datasets)
SELECT %(id)s, %(name)s, %(digest)s, %(scope)s, %(per_minute)s::integer,
    now() + %(lifetime)s::interval, %(made_from)s, %(datasets)s::text[]
WHERE NOT EXISTS (
    SELECT FROM serve.api_key WHERE id = %(made_from)s AND made_from IS NOT NULL
)
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from, datasets;

-- name: set_key_limit
-- Change the rate limit of a key.
UPDATE serve.api_key
SET per_minute = %(per_minute)s
WHERE id = %(id)s
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from, datasets;

-- name: set_key_datasets
-- Change which datasets a key may read.
UPDATE serve.api_key
SET datasets = %(datasets)s
WHERE id = %(id)s
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from, datasets;

-- name: revoke_key
-- Revoke a key; no row if it does not exist or is already revoked.
UPDATE serve.api_key
SET revoked_at = now()
WHERE id = %(id)s AND revoked_at IS NULL
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from, datasets;

-- name: record_key_use
-- Record that a key was used; skip a row that another server is updating.
UPDATE serve.api_key
SET last_used_at = now()
WHERE id IN (SELECT id FROM serve.api_key WHERE id = %(id)s FOR UPDATE SKIP LOCKED)
    AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute');

-- name: list_keys
-- List all keys, newest last; a login expires with the key it was made from, and has its rate limit and
-- datasets.
SELECT k.id, k.name, k.scope,
    CASE WHEN f.id IS NULL THEN k.per_minute ELSE f.per_minute END AS per_minute,
    k.created_at, least(k.expires_at, f.expires_at) AS expires_at,
    k.last_used_at, coalesce(k.revoked_at, f.revoked_at) AS revoked_at,
    coalesce(least(k.expires_at, f.expires_at) <= now(), false) AS expired, k.digest, k.made_from,
    CASE WHEN f.id IS NULL THEN k.datasets ELSE f.datasets END AS datasets
FROM serve.api_key AS k
LEFT JOIN serve.api_key AS f ON f.id = k.made_from
WHERE k.made_from IS NULL OR %(logins)s
ORDER BY k.created_at, k.id;

-- name: delete_ended_logins
-- Delete logins that ended more than a day ago.
DELETE FROM serve.api_key
WHERE made_from IS NOT NULL
    AND (expires_at < now() - interval '1 day' OR revoked_at < now() - interval '1 day');

-- name: count_runs
-- Count runs by job, state and outcome, with the end of the newest of each.
SELECT job, state, outcome, count(*) AS runs, max(finished_at) AS last_finished_at
FROM jobs.run
GROUP BY job, state, outcome
ORDER BY job, state, outcome;

-- name: save_follower_positions
-- Save the positions of API keys in feeds, without those of logins.
INSERT INTO deliver.position AS p (sink, dataset, epoch, seq)
SELECT positions.sink, positions.dataset, positions.epoch, positions.seq
  FROM unnest(%(sinks)s::text[], %(datasets)s::text[], %(epochs)s::uuid[], %(seqs)s::bigint[])
       AS positions (sink, dataset, epoch, seq)
  JOIN serve.api_key AS k ON positions.sink = 'key:' || k.id AND k.made_from IS NULL
ON CONFLICT (sink, dataset) DO UPDATE
   SET epoch = excluded.epoch, seq = excluded.seq, at = clock_timestamp()

-- name: lease_tokens
-- Take tokens from a shared bucket.
SELECT granted, remaining FROM serve.lease_tokens(%(name)s, %(per_minute)s, %(wanted)s);

-- name: add_usage
-- Add the counts of a process to those of the day; logins count as their key.
INSERT INTO serve.usage AS u (caller, day, requests, refused, failed, bytes)
SELECT caller, (clock_timestamp() AT TIME ZONE %(zone)s)::date, requests, refused, failed, bytes
  FROM unnest(%(callers)s::text[], %(requests)s::bigint[], %(refused)s::bigint[],
              %(failed)s::bigint[], %(bytes)s::bigint[])
       AS counted (caller, requests, refused, failed, bytes)
 ORDER BY caller
ON CONFLICT (caller, day) DO UPDATE
   SET requests = u.requests + excluded.requests, refused = u.refused + excluded.refused,
       failed = u.failed + excluded.failed, bytes = u.bytes + excluded.bytes;

-- name: list_usage
-- The counts of the last days by caller and day, newest first; of one caller or of all.
SELECT u.caller, k.name, u.day, u.requests, u.refused, u.failed, u.bytes
  FROM serve.usage AS u
  LEFT JOIN serve.api_key AS k ON u.caller = 'key:' || k.id
 WHERE u.day > (clock_timestamp() AT TIME ZONE %(zone)s)::date - %(days)s
   AND (%(caller)s::text IS NULL OR u.caller = %(caller)s)
 ORDER BY u.day DESC, u.caller;

-- name: total_usage
-- All counts on record by caller.
SELECT u.caller, k.name, sum(u.requests)::bigint AS requests, sum(u.refused)::bigint AS refused,
       sum(u.failed)::bigint AS failed, sum(u.bytes)::bigint AS bytes
  FROM serve.usage AS u
  LEFT JOIN serve.api_key AS k ON u.caller = 'key:' || k.id
 GROUP BY u.caller, k.name
 ORDER BY u.caller;
