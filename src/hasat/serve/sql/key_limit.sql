-- Change the rate limit of a key.
UPDATE serve.api_key
SET per_minute = %(per_minute)s
WHERE id = %(id)s
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from;
