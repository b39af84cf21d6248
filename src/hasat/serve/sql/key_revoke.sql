-- Revoke a key; no row if there is no such key or it was revoked before.
UPDATE serve.api_key
SET revoked_at = now()
WHERE id = %(id)s AND revoked_at IS NULL
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from;
