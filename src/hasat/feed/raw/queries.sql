-- name: store_response
-- Store a new response, or the description of one whose file follows; count the newest response to
-- the request again if it is the same. With `asynchronous` the commit does not wait for the disk.
WITH again AS (
    UPDATE raw.response r SET last_received_at = clock_timestamp(), times = r.times + 1
    FROM (
        SELECT id FROM raw.response
        WHERE dataset = %(dataset)s AND key IS NOT DISTINCT FROM %(key)s
        ORDER BY last_received_at DESC, id DESC LIMIT 1
    ) newest
    WHERE r.id = newest.id AND r.sha256 = %(sha256)s AND r.status = %(status)s
      AND r.request = %(request)s AND r.complete
      AND (r.machine IS NULL OR r.machine = %(machine)s)
    RETURNING r.id
), added AS (
    INSERT INTO raw.response (
        source, dataset, key, request, status, headers, sha256, size, content, path, machine,
        complete, run
    )
    SELECT
        %(source)s, %(dataset)s, %(key)s, %(request)s, %(status)s, %(headers)s, %(sha256)s,
        %(size)s, %(content)s, %(path)s, %(machine)s, %(path)s::text IS NULL, %(run)s
    WHERE NOT EXISTS (SELECT FROM again)
    RETURNING id
)
SELECT stored.id, stored.is_new,
    CASE WHEN %(asynchronous)s THEN set_config('synchronous_commit', 'off', true) END AS committed
FROM (
    SELECT id, false AS is_new FROM again UNION ALL SELECT id, true FROM added
) AS stored;

-- name: mark_applied
-- Record that the records of a response enter the mirror with this transaction.
UPDATE raw.response SET applied_at = clock_timestamp() WHERE id = %(id)s;

-- name: mark_newest_applied
-- Record for some records that their newest responses enter the mirror with this transaction.
UPDATE raw.response r SET applied_at = clock_timestamp()
FROM (
    SELECT DISTINCT ON (key) id FROM raw.response
    WHERE dataset = %(dataset)s AND key = ANY (%(keys)s::text[])
    ORDER BY key, last_received_at DESC, id DESC
) newest
WHERE r.id = newest.id;

-- name: applied_lists
-- The applied responses that cover a whole dataset, the newest first.
SELECT id, key, request, status, sha256, size, content, path, machine
FROM raw.response
WHERE dataset = %(dataset)s AND key IS NULL AND complete AND applied_at IS NOT NULL
ORDER BY applied_at DESC, id DESC;

-- name: last_applied_size
-- The size of the list that was applied last.
SELECT size FROM raw.response
WHERE dataset = %(dataset)s AND key IS NULL AND applied_at IS NOT NULL
ORDER BY applied_at DESC, id DESC LIMIT 1;

-- name: applied_records
-- The newest applied response for every record of a dataset.
SELECT DISTINCT ON (key) id, key, request, status, sha256, size, content, path, machine
FROM raw.response
WHERE dataset = %(dataset)s AND key IS NOT NULL AND complete AND applied_at IS NOT NULL
ORDER BY key, applied_at DESC, id DESC;

-- name: expired_responses
-- The responses past their retention, except the newest applied one to each request, and those
-- whose file was never stored.
SELECT id, path, machine FROM raw.response r
WHERE dataset = %(dataset)s AND (
    (NOT complete AND received_at < clock_timestamp() - interval '1 day')
    OR (
        last_received_at < clock_timestamp() - make_interval(days => %(days)s)
        AND EXISTS (
            SELECT FROM raw.response newer
            WHERE newer.dataset = r.dataset AND newer.key IS NOT DISTINCT FROM r.key
              AND newer.applied_at IS NOT NULL AND newer.id <> r.id
              AND (r.applied_at IS NULL OR (newer.applied_at, newer.id) > (r.applied_at, r.id))
        )
    )
)
ORDER BY id
LIMIT 1000;

-- name: delete_expired_bodies
-- Delete responses of a dataset that are in the database and were last received too long ago.
DELETE FROM raw.response
WHERE source = %(source)s AND dataset = %(dataset)s AND content IS NOT NULL
  AND last_received_at < clock_timestamp() - make_interval(days => %(days)s);
