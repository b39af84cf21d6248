-- Who else has a transaction open in this database, the oldest first.
SELECT format(
           '%s (process %s%s, since %s UTC)',
           coalesce(nullif(application_name, ''), usename, 'a session'),
           pid,
           coalesce(' from ' || host(client_addr), ''),
           to_char(xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
       )
FROM pg_stat_activity
WHERE datname = current_database()
  AND pid <> pg_backend_pid()
  AND backend_type = 'client backend'
  AND xact_start IS NOT NULL
ORDER BY xact_start
LIMIT 3
