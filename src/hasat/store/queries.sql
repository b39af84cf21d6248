-- name: audit_carry
INSERT INTO jobs.audit
    (token, at, actor, actor_kind, address, action, object, reason, outcome, detail)
VALUES (
    %(token)s, %(at)s, %(actor)s, %(actor_kind)s, %(address)s, %(action)s, %(object)s, %(reason)s,
    %(outcome)s, %(detail)s
)
ON CONFLICT (token) DO NOTHING

-- name: audit_list
SELECT id, at, actor, actor_kind, address, action, object, reason, outcome, detail
  FROM jobs.audit
 WHERE (%(actor)s::text IS NULL OR actor = %(actor)s)
   AND (%(action)s::text IS NULL OR action = %(action)s OR starts_with(action, %(action)s || '.'))
   AND (%(before)s::bigint IS NULL OR id < %(before)s)
 ORDER BY id DESC
 LIMIT %(limit)s

-- name: audit_write
INSERT INTO jobs.audit (token, actor, actor_kind, address, action, object, reason, outcome, detail)
VALUES (
    %(token)s, %(actor)s, %(kind)s, %(address)s, %(action)s, %(object)s, %(reason)s, %(outcome)s,
    %(detail)s
)
ON CONFLICT (token) DO NOTHING

-- name: is_empty
-- Return whether the database is empty.
SELECT NOT EXISTS (
    SELECT
    FROM pg_class
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
      AND nspname <> 'information_schema' AND nspname NOT LIKE 'pg\_%'
)

-- name: new_epoch
-- After a restore, cursors and times of the life before must not be taken for this one's.
DO $$
BEGIN
    IF to_regclass('feed.head') IS NOT NULL THEN
        UPDATE feed.head
           SET epoch = gen_random_uuid(),
               floor = seq,
               floor_at = greatest(clock_timestamp(), committed_at)
         WHERE committed_at IS NOT NULL;
    END IF;
    -- What was committed after the backup is not in it.
    IF to_regclass('feed.history_gap') IS NOT NULL THEN
        INSERT INTO feed.history_gap (dataset, after, until)
        SELECT dataset, committed_at, floor_at FROM feed.head WHERE committed_at IS NOT NULL
        ON CONFLICT (dataset, after) DO UPDATE SET until = excluded.until;
    END IF;
END
$$;

-- name: open_transactions
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

-- name: other_users
-- Which other Hasat processes are connected to this database.
SELECT DISTINCT application_name
FROM pg_stat_activity
WHERE datname = current_database()
  AND pid <> pg_backend_pid()
  AND application_name LIKE 'hasat %@%'
  AND application_name <> current_setting('application_name')
ORDER BY 1

-- name: record_table
-- Which migrations were applied, by which Hasat.
CREATE TABLE IF NOT EXISTS public.hasat_migration (
    set_name      text        NOT NULL,
    name          text        NOT NULL,
    checksum      text        NOT NULL,
    hasat_version text        NOT NULL,
    applied_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (set_name, name)
)

-- name: wipe
-- Drop everything that is Hasat's, so that a backup finds the place it was taken from.
-- Tables of other programs in the same database stay.
DROP SCHEMA IF EXISTS raw, core, mart, feed, budget, fetching, jobs, serve, deliver CASCADE;
DROP TABLE IF EXISTS public.hasat_migration;

DO $$
DECLARE
    thing record;
BEGIN
    FOR thing IN
        SELECT format('DROP TABLE IF EXISTS %s CASCADE', oid::regclass) AS command
        FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
          AND relname LIKE 'procrastinate\_%'
        UNION ALL
        SELECT format('DROP ROUTINE IF EXISTS %s CASCADE', oid::regprocedure)
        FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'procrastinate\_%'
        UNION ALL
        SELECT format('DROP TYPE IF EXISTS %s CASCADE', oid::regtype)
        FROM pg_type
        WHERE typnamespace = 'public'::regnamespace AND typtype = 'e'
          AND typname LIKE 'procrastinate\_%'
    LOOP
        EXECUTE thing.command;
    END LOOP;
END
$$;
