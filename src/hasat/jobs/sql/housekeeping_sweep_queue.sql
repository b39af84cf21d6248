-- Rows of the queue that stand for nothing: ended ones, and waiting ones without an open run.
DELETE FROM procrastinate_jobs AS q
 WHERE q.status NOT IN ('todo', 'doing')
    OR (q.status = 'todo' AND q.task_name = %(task)s
        AND NOT EXISTS (
            SELECT FROM jobs.run AS r WHERE r.queue_id = q.id AND r.state <> 'finished'
        ));
