-- Note that a key was used; a row that another server is writing is left to it.
UPDATE serve.api_key
SET last_used_at = now()
WHERE id IN (SELECT id FROM serve.api_key WHERE id = %(id)s FOR UPDATE SKIP LOCKED)
    AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute');
