-- name: add_keys
-- Add keys to the watch set of a dataset; a key that is there stays as it is.
INSERT INTO feed.watched_key (dataset, key)
SELECT %(dataset)s, key FROM unnest(%(keys)s::text[]) AS key
ON CONFLICT DO NOTHING;

-- name: remove_keys
-- Remove keys from the watch set of a dataset; their records stay in the mirror.
DELETE FROM feed.watched_key WHERE dataset = %(dataset)s AND key = ANY (%(keys)s::text[]);

-- name: watched_keys
-- The watch set of a dataset, by key.
SELECT key, added_at, attempted_at, checked_at, outcome FROM feed.watched_key
WHERE dataset = %(dataset)s ORDER BY key;

-- name: due_keys
-- The keys to request next: new ones, then those whose last attempt is the oldest. A failed
-- attempt is repeated earlier than a good one.
SELECT key FROM feed.watched_key
WHERE dataset = %(dataset)s AND (
    attempted_at IS NULL
    OR attempted_at <= clock_timestamp() - CASE WHEN outcome IN ('ok', 'empty')
        THEN %(max_age)s::interval ELSE least(%(max_age)s::interval, %(retry)s::interval) END
)
ORDER BY attempted_at NULLS FIRST, added_at, key
LIMIT %(limit)s;

-- name: note_attempt
-- Record the outcome of a request for one key.
UPDATE feed.watched_key SET
    attempted_at = clock_timestamp(),
    checked_at = CASE WHEN %(outcome)s IN ('ok', 'empty') THEN clock_timestamp() ELSE checked_at END,
    outcome = %(outcome)s
WHERE dataset = %(dataset)s AND key = %(key)s;

-- name: absent_records
-- The records of the mirror whose key the upstream no longer has.
SELECT w.key FROM feed.watched_key w JOIN {table} m ON m.key = w.key
WHERE w.dataset = %(dataset)s AND w.outcome = 'empty' ORDER BY w.key;
