-- name: housekeeping_drop_unwanted
-- Skip runs that no worker has started for days.
WITH unwanted AS (
    SELECT q.id, r.id AS run,
           jsonb_build_object('template', %(unclaimed)s::text,
                              'params', jsonb_build_object('days', %(days)s)) AS message
      FROM procrastinate_jobs AS q
      JOIN jobs.run AS r ON r.queue_id = q.id
     WHERE r.state = 'queued' AND q.status = 'todo'
       AND r.queued_at < clock_timestamp() - make_interval(days => %(days)s)
       FOR UPDATE OF q
), dropped AS (
    UPDATE jobs.run AS r
       SET state = 'finished', outcome = 'skipped', finished_at = clock_timestamp(),
           message = jobs.message_text(unwanted.message), message_data = unwanted.message
      FROM unwanted
     WHERE r.id = unwanted.run AND r.state = 'queued'
)
DELETE FROM procrastinate_jobs AS q USING unwanted WHERE q.id = unwanted.id;

-- name: housekeeping_forget_runs
-- Delete expired runs, except the last one of each job.
DELETE FROM jobs.run AS r
 WHERE r.state = 'finished'
   AND r.finished_at < clock_timestamp() - make_interval(days => %(days)s)
   AND EXISTS (SELECT FROM jobs.run AS newer WHERE newer.job = r.job AND newer.id > r.id);

-- name: housekeeping_forget_set_aside
-- Delete expired quarantined records. Records that are still published are quarantined at each read.
DELETE FROM raw.set_aside WHERE at < clock_timestamp() - make_interval(days => %(days)s);

-- name: housekeeping_sweep_queue
-- Delete rows of the queue that have finished or have no open run.
DELETE FROM procrastinate_jobs AS q
 WHERE q.status NOT IN ('todo', 'doing')
    OR (q.status = 'todo' AND q.task_name = %(task)s
        AND NOT EXISTS (
            SELECT FROM jobs.run AS r WHERE r.queue_id = q.id AND r.state <> 'finished'
        ));

-- name: queue_beat
-- Send a worker's heartbeat and return the runs to stop; no row after other workers gave it up.
WITH alive AS (
    UPDATE procrastinate_workers SET last_heartbeat = clock_timestamp() WHERE id = %(worker_id)s
    RETURNING id
)
SELECT ARRAY(SELECT (q.args ->> 'run_id')::bigint
               FROM procrastinate_jobs AS q
              WHERE q.worker_id = alive.id AND q.status = 'doing' AND q.abort_requested)
  FROM alive;

-- name: queue_beats
-- Return the heartbeats of all workers and the time.
SELECT clock.now, w.id, w.last_heartbeat
  FROM (SELECT clock_timestamp() AS now) AS clock
  LEFT JOIN procrastinate_workers AS w ON true;

-- name: queue_close_strays
-- End open runs without a row in the queue, which would block their job for ever.
WITH stray AS (
    SELECT r.id,
           jsonb_build_object('template', %(lost_place)s::text,
                              'params', jsonb_build_object('run', r.id)) AS message
      FROM jobs.run AS r
     WHERE r.state <> 'finished'
       AND NOT EXISTS (SELECT FROM procrastinate_jobs AS q WHERE q.id = r.queue_id)
)
UPDATE jobs.run AS r
   SET state = 'finished', outcome = 'interrupted', finished_at = clock_timestamp(),
       rows_changed = jobs.rows_stored(r.id),
       message = jobs.message_text(stray.message), message_data = stray.message
  FROM stray
 WHERE r.id = stray.id AND r.state <> 'finished'
   AND NOT EXISTS (SELECT FROM procrastinate_jobs AS q WHERE q.id = r.queue_id)
RETURNING r.id;

-- name: queue_finish
-- Record the result of an attempt and remove the run from the queue, unless it was taken over.
-- The rows committed by all attempts count: the last one may have found nothing left to do.
-- The queue's row is locked first, as in every statement that decides about runs.
WITH mine AS (
    SELECT q.id
      FROM procrastinate_jobs AS q
      JOIN jobs.run AS r ON r.queue_id = q.id
     WHERE r.id = %(run)s AND r.attempt = %(attempt)s AND r.state = 'running'
       FOR UPDATE OF q
), ended AS (
    UPDATE jobs.run
       SET state = 'finished',
           outcome = CASE WHEN %(outcome)s = 'nothing' AND jobs.rows_stored(id) > 0
                          THEN 'done' ELSE %(outcome)s END,
           finished_at = clock_timestamp(),
           requests = requests + %(requests)s,
           rows_changed = greatest(%(rows_changed)s, jobs.rows_stored(id)),
           message = %(message)s,
           message_data = %(message_data)s,
           error = %(error)s,
           detail = %(detail)s,
           progress = coalesce(%(progress)s, progress)
      FROM (SELECT count(*) FROM mine) AS locked
     WHERE id = %(run)s AND attempt = %(attempt)s AND state = 'running'
    RETURNING queue_id
), gone AS (
    DELETE FROM procrastinate_jobs AS q USING ended WHERE q.id = ended.queue_id
)
-- The second half covers a result that was recorded before, but whose response was lost.
SELECT EXISTS (SELECT FROM ended)
    OR EXISTS (SELECT
                 FROM jobs.run
                WHERE id = %(run)s AND attempt = %(attempt)s
                  AND outcome IN (%(outcome)s, CASE %(outcome)s WHEN 'nothing' THEN 'done' END));

-- name: queue_give_back
-- Queue a run again after a pause, unless it was taken over; end it if it was asked to stop.
WITH mine AS (
    SELECT q.id, q.abort_requested AS over
      FROM procrastinate_jobs AS q
      JOIN jobs.run AS r ON r.queue_id = q.id
     WHERE r.id = %(run)s AND r.attempt = %(attempt)s AND r.state = 'running'
       AND q.status = 'doing'
       FOR UPDATE OF q
), back AS (
    UPDATE jobs.run AS r
       SET state = CASE WHEN over THEN 'finished' ELSE 'queued' END,
           outcome = CASE WHEN over THEN 'interrupted' END,
           finished_at = CASE WHEN over THEN clock_timestamp() END,
           attempt = r.attempt - (NOT over AND NOT %(counts)s)::integer,
           worker = CASE WHEN over THEN r.worker END,
           started_at = CASE WHEN over THEN r.started_at END,
           progress = CASE WHEN over THEN r.progress END,
           requests = r.requests + %(requests)s,
           rows_changed = jobs.rows_stored(r.id),
           message = CASE WHEN over THEN %(stopped)s ELSE %(message)s END,
           message_data = CASE WHEN over THEN %(stopped_data)s ELSE %(message_data)s END
      FROM mine
     WHERE r.id = %(run)s AND r.attempt = %(attempt)s AND r.state = 'running'
    RETURNING r.id
), gone AS (
    DELETE FROM procrastinate_jobs AS q USING mine, back WHERE q.id = mine.id AND mine.over
), again AS (
    UPDATE procrastinate_jobs AS q
       SET status = 'todo',
           worker_id = NULL,
           attempts = attempts + 1,
           scheduled_at = now() + make_interval(secs => %(pause)s)
      FROM mine, back
     WHERE q.id = mine.id AND NOT mine.over
)
SELECT EXISTS (SELECT FROM back);

-- name: queue_give_up_workers
-- Delete silent workers, except those that have sent a heartbeat meanwhile.
DELETE FROM procrastinate_workers AS w
 USING unnest(%(ids)s::bigint[], %(beats)s::timestamptz[]) AS silent (id, beat)
 WHERE w.id = silent.id AND w.last_heartbeat = silent.beat
RETURNING w.id;

-- name: queue_held
-- Return the rows that are assigned to a worker.
SELECT id FROM procrastinate_jobs WHERE status = 'doing' AND worker_id = %(worker_id)s;

-- name: queue_holder
-- Return the run that holds a job's lock and the last heartbeat of its process.
SELECT r.id AS run, r.worker, coalesce(r.started_at, r.queued_at) AS since, q.worker_id,
       w.last_heartbeat AS beat
  FROM procrastinate_jobs AS q
  JOIN jobs.run AS r ON r.queue_id = q.id
  LEFT JOIN procrastinate_workers AS w ON w.id = q.worker_id
 WHERE q.lock = %(job)s AND q.status = 'doing';

-- name: queue_let_go
-- Release rows that were assigned to a worker without its knowledge.
UPDATE procrastinate_jobs
   SET worker_id = NULL
 WHERE id = ANY(%(ids)s) AND status = 'doing' AND worker_id = %(worker_id)s;

-- name: queue_lock
-- Lock the queue's row of a run against workers that take or requeue it.
SELECT
  FROM procrastinate_jobs AS q
  JOIN jobs.run AS r ON r.queue_id = q.id
 WHERE r.id = %(run)s
   FOR UPDATE OF q;

-- name: queue_one_at_a_time
-- Let one caller at a time decide whether to queue a run of a job, until its transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('hasat.jobs.queue:' || %(job)s, 0));

-- name: open_approval
-- Return the queued or running run that applies a hold.
SELECT id FROM jobs.run
 WHERE job = %(job)s AND state <> 'finished' AND params ->> 'approve' = %(hold)s::text
 ORDER BY id
 LIMIT 1;

-- name: queue_put
-- Add a run to procrastinate's queue; the lock allows one running run per job.
WITH queued AS (
    SELECT unnest(procrastinate_defer_jobs_v1(ARRAY[
        ROW(%(queue)s, %(task)s, %(priority)s, %(job)s, NULL,
            jsonb_build_object('run_id', %(run)s::bigint), NULL)::procrastinate_job_to_defer_v1
    ])) AS id
)
UPDATE jobs.run SET queue_id = queued.id FROM queued WHERE jobs.run.id = %(run)s;

-- name: queue_release
-- Delete a row of the queue if it still belongs to this worker and was not assigned again.
DELETE FROM procrastinate_jobs
 WHERE id = %(id)s AND status = 'doing' AND worker_id = %(worker_id)s AND attempts = %(attempts)s;

-- name: queue_start
-- Start an attempt if the queue's row still belongs to the worker; a repeated start counts once.
WITH mine AS (
    SELECT id
      FROM procrastinate_jobs
     WHERE id = %(queue_id)s AND status = 'doing' AND worker_id = %(worker_id)s
       FOR UPDATE
)
UPDATE jobs.run AS r
   SET state = 'running',
       attempt = r.attempt + (r.state = 'queued')::integer,
       worker = %(worker)s,
       started_at = clock_timestamp(),
       progress = NULL,
       queue_id = mine.id
  FROM mine
 WHERE r.id = %(run)s AND r.state <> 'finished'
RETURNING r.attempt;

-- name: queue_stop
-- End a queued run, or ask the worker of a running one to stop; no row if it has finished.
WITH open AS (
    SELECT r.id AS run, q.id, q.status
      FROM procrastinate_jobs AS q
      JOIN jobs.run AS r ON r.queue_id = q.id
     WHERE r.id = %(run)s AND r.state <> 'finished' AND q.status IN ('todo', 'doing')
       FOR UPDATE OF q
), ended AS (
    UPDATE jobs.run AS r
       SET state = 'finished', outcome = 'interrupted', finished_at = clock_timestamp(),
           rows_changed = jobs.rows_stored(r.id), message = %(message)s,
           message_data = %(message_data)s
      FROM open
     WHERE r.id = open.run AND open.status = 'todo'
), gone AS (
    DELETE FROM procrastinate_jobs AS q USING open WHERE q.id = open.id AND open.status = 'todo'
), requested AS (
    UPDATE procrastinate_jobs AS q
       SET abort_requested = true
      FROM open
     WHERE q.id = open.id AND open.status = 'doing'
)
SELECT status = 'doing' AS is_running FROM open;

-- name: queue_take
-- Add a run that this process executes itself; no row if the lock of its job is held.
WITH taken AS (
    INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args, status, worker_id)
    VALUES (%(queue)s, %(task)s, %(job)s, jsonb_build_object('run_id', %(run)s::bigint), 'doing',
            %(worker_id)s)
    ON CONFLICT (lock) WHERE status = 'doing' DO NOTHING
    RETURNING id
)
UPDATE jobs.run SET queue_id = taken.id FROM taken WHERE jobs.run.id = %(run)s
RETURNING queue_id;

-- name: queue_take_up
-- Requeue runs whose worker is gone, or end them with a reason.
WITH lost AS (
    SELECT id, queue_name, abort_requested AS stopped, (args ->> 'run_id')::bigint AS run
      FROM procrastinate_jobs
     WHERE task_name = %(task)s AND status = 'doing' AND worker_id IS NULL
       FOR UPDATE SKIP LOCKED
), verdict AS (
    SELECT lost.id, lost.run, lost.stopped, r.job, r.state, r.attempt, r.worker,
           CASE WHEN r.id IS NULL OR r.state = 'finished' THEN 'over'
                WHEN lost.stopped OR starts_with(lost.queue_name, %(private)s) THEN 'interrupted'
                WHEN r.state = 'running' AND r.attempt >= %(attempts)s THEN 'set_aside'
                ELSE 'again'
           END AS fate
      FROM lost
      LEFT JOIN jobs.run AS r ON r.id = lost.run
), changed AS (
    UPDATE jobs.run AS r
       SET state = CASE verdict.fate WHEN 'again' THEN 'queued' ELSE 'finished' END,
           outcome = CASE verdict.fate WHEN 'again' THEN NULL ELSE verdict.fate END,
           finished_at = CASE verdict.fate WHEN 'again' THEN NULL ELSE clock_timestamp() END,
           progress = CASE verdict.fate WHEN 'again' THEN NULL ELSE r.progress END,
           rows_changed = jobs.rows_stored(r.id),
           message = coalesce(jobs.message_text(reason.message), r.message),
           message_data = coalesce(reason.message, r.message_data)
      FROM verdict
      LEFT JOIN LATERAL (
           SELECT jsonb_build_object(
                      'template',
                      CASE WHEN verdict.fate = 'set_aside' THEN %(set_aside)s::text
                           WHEN verdict.stopped THEN %(stopped)s
                           WHEN verdict.fate = 'interrupted' THEN %(process_died)s
                           ELSE %(worker_died)s
                      END,
                      'params',
                      jsonb_build_object('attempt', verdict.attempt, 'job', verdict.job,
                                         'run', verdict.run,
                                         'worker', coalesce(verdict.worker, 'unknown')))
            WHERE verdict.fate <> 'again' OR verdict.state = 'running'
     ) AS reason (message) ON true
     WHERE r.id = verdict.run AND r.state = verdict.state AND r.attempt = verdict.attempt
       AND verdict.fate <> 'over'
), ended AS (
    DELETE FROM procrastinate_jobs AS q
     USING verdict WHERE q.id = verdict.id AND verdict.fate <> 'again'
), queued AS (
    UPDATE procrastinate_jobs AS q
       SET status = 'todo', attempts = attempts + 1, scheduled_at = NULL
      FROM verdict
     WHERE q.id = verdict.id AND verdict.fate = 'again'
)
SELECT run, job, fate, attempt, worker FROM verdict;

-- name: queue_workers
-- Count the processes with a recent heartbeat, including those of manual runs.
SELECT count(*) FROM procrastinate_workers
 WHERE last_heartbeat > clock_timestamp() - make_interval(secs => %(seconds)s);

-- name: run_insert
-- Insert a queued run; no row if this due time was queued before.
INSERT INTO jobs.run (job, params, trigger, scheduled_for)
VALUES (%(job)s, %(params)s, %(trigger)s, %(scheduled_for)s)
ON CONFLICT (job, scheduled_for) WHERE trigger = 'schedule' DO NOTHING
RETURNING id;

-- name: run_last_of_each
-- Return the newest run of each given job. Not `job = wanted.job` inside: for a job that has never
-- run, the planner may scan all runs from the newest to the oldest.
SELECT r.*
  FROM unnest(%(jobs)s::text[]) AS wanted (job)
 CROSS JOIN LATERAL (
       SELECT id, job, params, trigger, scheduled_for, queued_at, started_at, finished_at, state,
              outcome, attempt, worker, requests,
              CASE state WHEN 'running' THEN jobs.rows_stored(id)
                         ELSE rows_changed END AS rows_changed,
              message, message_data, error, detail, progress,
              (SELECT h.state FROM feed.hold AS h WHERE outcome = 'held' AND run.id = ANY (h.runs)
                ORDER BY h.id DESC LIMIT 1) AS hold
         FROM jobs.run
        WHERE job >= wanted.job
        ORDER BY job, id DESC
        LIMIT 1
 ) AS r
 WHERE r.job = wanted.job;

-- name: run_list
-- Return runs, newest first, with optional filters; a running one with its committed rows.
SELECT id, job, params, trigger, scheduled_for, queued_at, started_at, finished_at, state, outcome,
       attempt, worker, requests,
       CASE state WHEN 'running' THEN jobs.rows_stored(id) ELSE rows_changed END AS rows_changed,
       message, message_data, error, detail, progress,
       (SELECT h.state FROM feed.hold AS h WHERE outcome = 'held' AND run.id = ANY (h.runs)
         ORDER BY h.id DESC LIMIT 1) AS hold
  FROM jobs.run
 WHERE (%(id)s::bigint IS NULL OR id = %(id)s)
   AND (%(job)s::text IS NULL OR job = %(job)s)
   AND (%(before)s::bigint IS NULL OR id < %(before)s)
   AND (NOT %(open)s OR state <> 'finished')
   AND (NOT %(bad)s OR outcome IN ('failed', 'set_aside', 'interrupted'))
   AND (%(jobs)s::text[] IS NULL OR job = ANY (%(jobs)s))
   AND (%(statuses)s::text[] IS NULL OR coalesce(outcome, state) = ANY (%(statuses)s))
   AND (%(since)s::timestamptz IS NULL OR coalesce(finished_at, started_at, queued_at) >= %(since)s)
 ORDER BY id DESC
 LIMIT %(limit)s;

-- name: run_log_insert
-- Store log lines of an attempt; lines that are stored already are left.
INSERT INTO jobs.run_log (run, attempt, number, at, level, event, fields)
SELECT %(run)s, %(attempt)s, one.number, one.at, one.level, one.event, one.fields
  FROM unnest(%(numbers)s::int[], %(times)s::timestamptz[], %(levels)s::text[], %(events)s::text[],
              %(fields)s::jsonb[]) AS one (number, at, level, event, fields)
ON CONFLICT DO NOTHING;

-- name: run_log
-- Return the log lines of a run, oldest first.
SELECT attempt, number, at, level, event, fields FROM jobs.run_log
 WHERE run = %(run)s
 ORDER BY attempt, number;

-- name: run_progress
-- Store the progress of an attempt, unless the run was taken over.
UPDATE jobs.run
   SET progress = coalesce(%(progress)s, progress), requests = requests + %(requests)s
 WHERE id = %(run)s AND attempt = %(attempt)s AND state = 'running';

-- name: run_refuse
-- Insert a run that is skipped because another run of its job is open.
INSERT INTO jobs.run
       (job, params, trigger, scheduled_for, state, outcome, finished_at, message, message_data,
        detail)
VALUES (%(job)s, %(params)s, %(trigger)s, %(scheduled_for)s, 'finished', 'skipped',
        clock_timestamp(), %(message)s, %(message_data)s,
        jsonb_build_object('behind', %(behind)s::bigint, 'times', 1))
ON CONFLICT (job, scheduled_for) WHERE trigger = 'schedule' DO NOTHING
RETURNING id;

-- name: run_insert_held
-- Insert the held run of a command that did its work without one.
INSERT INTO jobs.run (job, params, trigger, state, outcome, started_at, finished_at, message, message_data)
SELECT %(job)s, %(params)s, 'hand', 'finished', 'held', at, at, %(message)s, %(message_data)s
  FROM clock_timestamp() AS at
RETURNING id;

-- name: run_refuse_again
-- Count another due time that is skipped behind the same run, instead of inserting one run each.
UPDATE jobs.run
   SET detail = detail || jsonb_build_object('times', (detail ->> 'times')::integer + 1),
       finished_at = clock_timestamp()
 WHERE id = (SELECT id
               FROM jobs.run
              WHERE job = %(job)s
                AND id > %(behind)s
                AND trigger = 'schedule'
                AND outcome = 'skipped'
                AND (detail ->> 'behind')::bigint = %(behind)s
              ORDER BY id DESC
              LIMIT 1)
RETURNING id;

-- name: run_repeatedly_skipped
-- Return jobs whose newest runs all started and were then skipped. Due times that were skipped
-- behind an open run never started and do not count.
SELECT s.job
  FROM jobs.schedule AS s
 CROSS JOIN LATERAL (
       SELECT count(*) AS runs, bool_and(newest.outcome = 'skipped') AS skipped
         FROM (SELECT outcome
                 FROM jobs.run
                WHERE job = s.job AND state = 'finished' AND started_at IS NOT NULL
                ORDER BY id DESC
                LIMIT %(times)s) AS newest
 ) AS of_job
 WHERE of_job.runs = %(times)s AND of_job.skipped
 ORDER BY s.job;

-- name: run_set_message
-- Set the message of an unfinished run.
UPDATE jobs.run SET message = %(message)s, message_data = %(message_data)s
 WHERE id = %(run)s AND state <> 'finished';

-- name: run_terminate_replaced
-- End the database sessions of a run's replaced attempts, or, without a run, of every replaced one.
SELECT run, pid, pg_terminate_backend(pid, %(wait_ms)s) AS is_gone
  FROM jobs.run_session
 WHERE run = %(run)s OR %(run)s::bigint IS NULL AND is_orphaned;

-- name: schedule_announce
-- Store the schedule of this worker's jobs. A new or changed schedule counts from now; a time in the
-- future (after a clock change) is reset, and the index run_due prevents a second run.
INSERT INTO jobs.schedule AS s (job, source, lane, cron, zone, enabled, fired_until)
SELECT job, source, lane, cron, zone, enabled, clock_timestamp()
  FROM unnest(%(job)s::text[], %(source)s::text[], %(lane)s::text[], %(cron)s::text[],
              %(zone)s::text[], %(enabled)s::boolean[])
       AS known (job, source, lane, cron, zone, enabled)
 ORDER BY job
ON CONFLICT (job) DO UPDATE
   SET source = excluded.source, lane = excluded.lane, cron = excluded.cron,
       zone = excluded.zone, enabled = excluded.enabled,
       fired_until = CASE
           WHEN (s.cron, s.zone, s.enabled)
                IS DISTINCT FROM (excluded.cron, excluded.zone, excluded.enabled)
           THEN excluded.fired_until
           ELSE least(s.fired_until, excluded.fired_until)
       END;

-- name: schedule_busy_with
-- Return the open run of a job. A run that waits for a certain machine (with negative priority) does
-- not count: that machine may be away for long.
SELECT r.id
  FROM jobs.run AS r
  LEFT JOIN procrastinate_jobs AS q ON q.id = r.queue_id
 WHERE r.job = %(job)s AND r.state <> 'finished'
   AND NOT (r.state = 'queued' AND coalesce(q.priority, 0) < 0)
 ORDER BY r.id
 LIMIT 1;

-- name: schedule_move
-- Claim a due time; only one worker gets a row.
UPDATE jobs.schedule SET fired_until = %(due)s
 WHERE job = %(job)s AND fired_until < %(due)s
RETURNING job;

-- name: schedule_read
-- Return the time, and the last due time of each job that was handled.
SELECT clock.now, s.job, s.fired_until
  FROM (SELECT clock_timestamp() AS now) AS clock
  LEFT JOIN jobs.schedule AS s ON s.job = ANY(%(jobs)s);

-- name: stuck_sessions
-- Return abandoned sessions that hold locks: the run was taken over, or they have been idle in a
-- transaction for longer than a live process is.
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
