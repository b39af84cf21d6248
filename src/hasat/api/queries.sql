-- name: buckets_prune
-- Delete buckets that are full again, which is what a missing one means.
DELETE FROM serve.token_bucket
WHERE name IN (
    SELECT name FROM serve.token_bucket
    WHERE filled_at < clock_timestamp() - interval '2 minutes'
    FOR UPDATE SKIP LOCKED
);

-- name: key_create
-- A new key; only the digest of its secret is kept. None is made from what is a login itself.
INSERT INTO serve.api_key (id, name, digest, scope, per_minute, expires_at, made_from)
SELECT %(id)s, %(name)s, %(digest)s, %(scope)s, %(per_minute)s::integer,
    now() + %(lifetime)s::interval, %(made_from)s
WHERE NOT EXISTS (
    SELECT FROM serve.api_key WHERE id = %(made_from)s AND made_from IS NOT NULL
)
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from;

-- name: key_limit
-- Change the rate limit of a key.
UPDATE serve.api_key
SET per_minute = %(per_minute)s
WHERE id = %(id)s
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from;

-- name: key_revoke
-- Revoke a key; no row if there is no such key or it was revoked before.
UPDATE serve.api_key
SET revoked_at = now()
WHERE id = %(id)s AND revoked_at IS NULL
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from;

-- name: key_used
-- Note that a key was used; a row that another server is writing is left to it.
UPDATE serve.api_key
SET last_used_at = now()
WHERE id IN (SELECT id FROM serve.api_key WHERE id = %(id)s FOR UPDATE SKIP LOCKED)
    AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute');

-- name: keys_list
-- Every key there is, the newest last; a login ends with the key that it was made from and has its
-- rate limit. Whether one has expired is for the database's clock to say.
SELECT k.id, k.name, k.scope,
    CASE WHEN f.id IS NULL THEN k.per_minute ELSE f.per_minute END AS per_minute,
    k.created_at, least(k.expires_at, f.expires_at) AS expires_at,
    k.last_used_at, coalesce(k.revoked_at, f.revoked_at) AS revoked_at,
    coalesce(least(k.expires_at, f.expires_at) <= now(), false) AS expired, k.digest, k.made_from
FROM serve.api_key AS k
LEFT JOIN serve.api_key AS f ON f.id = k.made_from
WHERE k.made_from IS NULL OR %(logins)s
ORDER BY k.created_at, k.id;

-- name: logins_forget
-- Logins that are over for a day.
DELETE FROM serve.api_key
WHERE made_from IS NOT NULL
    AND (expires_at < now() - interval '1 day' OR revoked_at < now() - interval '1 day');

-- name: run_counts
-- Runs by job, state and outcome, with the end of the newest of each.
SELECT job, state, outcome, count(*) AS runs, max(finished_at) AS last_finished_at
FROM jobs.run
GROUP BY job, state, outcome
ORDER BY job, state, outcome;

-- name: save_places
-- Where keys are in the feeds they follow; logins of browsers are left out.
INSERT INTO deliver.position AS p (sink, dataset, epoch, seq)
SELECT told.sink, told.dataset, told.epoch, told.seq
  FROM unnest(%(sinks)s::text[], %(datasets)s::text[], %(epochs)s::uuid[], %(seqs)s::bigint[])
       AS told (sink, dataset, epoch, seq)
  JOIN serve.api_key AS k ON told.sink = 'key:' || k.id AND k.made_from IS NULL
ON CONFLICT (sink, dataset) DO UPDATE
   SET epoch = excluded.epoch, seq = excluded.seq, at = clock_timestamp()

-- name: tokens_lease
-- Take tokens from a shared bucket.
SELECT granted, remaining FROM serve.lease_tokens(%(name)s, %(per_minute)s, %(wanted)s);
