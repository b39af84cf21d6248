-- name: delete_full_buckets
-- Delete full buckets; a missing bucket counts as full.
DELETE FROM serve.token_bucket
WHERE name IN (
    SELECT name FROM serve.token_bucket
    WHERE filled_at < clock_timestamp() - interval '2 minutes'
    FOR UPDATE SKIP LOCKED
);

-- name: create_key
-- Create a key, of which only the digest is stored; no row if `made_from` is itself a login.
INSERT INTO serve.api_key (id, name, digest, scope, per_minute, expires_at, made_from)
SELECT %(id)s, %(name)s, %(digest)s, %(scope)s, %(per_minute)s::integer,
    now() + %(lifetime)s::interval, %(made_from)s
WHERE NOT EXISTS (
    SELECT FROM serve.api_key WHERE id = %(made_from)s AND made_from IS NOT NULL
)
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from;

-- name: set_key_limit
-- Change the rate limit of a key.
UPDATE serve.api_key
SET per_minute = %(per_minute)s
WHERE id = %(id)s
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from;

-- name: revoke_key
-- Revoke a key; no row if it does not exist or is already revoked.
UPDATE serve.api_key
SET revoked_at = now()
WHERE id = %(id)s AND revoked_at IS NULL
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from;

-- name: record_key_use
-- Record that a key was used; skip a row that another server is updating.
UPDATE serve.api_key
SET last_used_at = now()
WHERE id IN (SELECT id FROM serve.api_key WHERE id = %(id)s FOR UPDATE SKIP LOCKED)
    AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute');

-- name: list_keys
-- List all keys, newest last; a login expires with the key it was made from and has its rate limit.
SELECT k.id, k.name, k.scope,
    CASE WHEN f.id IS NULL THEN k.per_minute ELSE f.per_minute END AS per_minute,
    k.created_at, least(k.expires_at, f.expires_at) AS expires_at,
    k.last_used_at, coalesce(k.revoked_at, f.revoked_at) AS revoked_at,
    coalesce(least(k.expires_at, f.expires_at) <= now(), false) AS expired, k.digest, k.made_from
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
