-- Logins that are over for a day.
DELETE FROM serve.api_key
WHERE made_from IS NOT NULL
    AND (expires_at < now() - interval '1 day' OR revoked_at < now() - interval '1 day');
