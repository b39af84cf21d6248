-- A new key; only the digest of its secret is kept.
INSERT INTO serve.api_key (id, name, digest, scope, expires_at)
VALUES (%(id)s, %(name)s, %(digest)s, %(scope)s, now() + %(lifetime)s::interval)
RETURNING id, name, scope, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest;
