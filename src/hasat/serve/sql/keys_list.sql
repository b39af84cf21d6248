-- Every key there is, the newest last. Whether one has expired is for the database's clock to say.
SELECT id, name, scope, created_at, expires_at, last_used_at, revoked_at,
    expires_at IS NOT NULL AND expires_at <= now() AS expired, digest
FROM serve.api_key
ORDER BY created_at, id;
