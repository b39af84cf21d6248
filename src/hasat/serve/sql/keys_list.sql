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
