-- Which database sessions write for a run, so that a replaced attempt can be cut off. A transaction
-- of an attempt holds the advisory lock (4730, run) in shared mode: it goes with the transaction,
-- behind PgBouncer too, and pg_locks shows which session that is at this moment.

-- Enter a transaction on behalf of an attempt; false if the run is no longer that attempt's.
-- Two statements: the second one sees what was committed before the lock was there. The
-- process that replaces an attempt commits that first, then ends the sessions that hold the lock.
CREATE FUNCTION jobs.enter(entered_run bigint, entered_attempt integer) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(4730, entered_run::integer);
    RETURN EXISTS (
        SELECT
          FROM jobs.run
         WHERE id = entered_run
           AND attempt = entered_attempt
           -- An attempt that has recorded its own end may still tidy up.
           AND (state = 'running'
                OR state = 'finished' AND outcome NOT IN ('interrupted', 'set_aside')));
END
$$;

CREATE VIEW jobs.run_session AS
SELECT l.pid,
       r.id AS run,
       r.state = 'queued' OR coalesce(r.outcome IN ('interrupted', 'set_aside'), false)
           AS is_orphaned
  FROM pg_locks AS l
  JOIN jobs.run AS r ON r.id = l.objid::bigint
 WHERE l.locktype = 'advisory'
   AND l.classid = 4730
   AND l.objsubid = 2
   AND l.granted
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database());
COMMENT ON COLUMN jobs.run_session.is_orphaned IS 'whether the run was taken from this session';
SELECT core.make_read_only('jobs.run_session');
