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
