-- Which other Hasat processes are connected to this database.
SELECT DISTINCT application_name
FROM pg_stat_activity
WHERE datname = current_database()
  AND pid <> pg_backend_pid()
  AND application_name LIKE 'hasat %@%'
  AND application_name <> current_setting('application_name')
ORDER BY 1
