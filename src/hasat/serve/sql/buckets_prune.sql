-- Delete buckets that are full again, which is what a missing one means.
DELETE FROM serve.token_bucket
WHERE name IN (
    SELECT name FROM serve.token_bucket
    WHERE filled_at < clock_timestamp() - interval '2 minutes'
    FOR UPDATE SKIP LOCKED
);
