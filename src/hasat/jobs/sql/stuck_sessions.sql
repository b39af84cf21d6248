-- Sessions that hold locks although they are abandoned: the run was taken from them, or they have
-- been idle in a transaction for longer than any living process of Hasat is.
WITH blocking AS (
    SELECT DISTINCT unnest(pg_blocking_pids(pid)) AS pid
      FROM pg_stat_activity
     WHERE datname = current_database() AND wait_event_type = 'Lock'
)
SELECT format('%%s (process %%s%%s, since %%s UTC)',
              coalesce(nullif(a.application_name, ''), a.usename, 'a session'),
              a.pid,
              coalesce(' from ' || host(a.client_addr), ''),
              to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'))
  FROM pg_stat_activity AS a
 WHERE a.datname = current_database()
   AND a.xact_start < now() - make_interval(secs => %(seconds)s)
   AND (a.pid IN (SELECT pid FROM jobs.run_session WHERE is_orphaned)
        OR a.state LIKE 'idle in transaction%%'
           AND a.state_change < now() - make_interval(secs => %(seconds)s)
           AND (a.pid IN (SELECT pid FROM blocking)
                OR a.pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')))
 ORDER BY a.xact_start;
