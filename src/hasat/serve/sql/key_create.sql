-- A new key; only the digest of its secret is kept. None is made from what is a login itself.
INSERT INTO serve.api_key (id, name, digest, scope, per_minute, expires_at, made_from)
SELECT %(id)s, %(name)s, %(digest)s, %(scope)s, %(per_minute)s::integer,
    now() + %(lifetime)s::interval, %(made_from)s
WHERE NOT EXISTS (
    SELECT FROM serve.api_key WHERE id = %(made_from)s AND made_from IS NOT NULL
)
RETURNING id, name, scope, per_minute, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest, made_from;
