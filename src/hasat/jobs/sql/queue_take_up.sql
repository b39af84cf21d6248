-- Decide about runs whose worker is gone: begin them anew, or end them with a reason.
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
           message = CASE
               WHEN verdict.fate = 'set_aside' THEN format(
                   'Set aside: its worker died %%s times while running it, last %%s. Read that '
                   'worker''s log, then run it by hand (hasat jobs run %%s) or queue it again '
                   '(hasat jobs retry %%s).', r.attempt, r.worker, r.job, r.id)
               WHEN verdict.stopped THEN %(stopped)s
               WHEN verdict.fate = 'interrupted' THEN format(
                   'The process that ran it by hand (%%s) died.', coalesce(r.worker, 'unknown'))
               WHEN r.state = 'running' THEN format(
                   'Its worker %%s died during attempt %%s; it is begun anew.', r.worker, r.attempt)
               ELSE r.message
           END
      FROM verdict
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
