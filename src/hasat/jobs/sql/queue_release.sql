-- Take a row out of the queue, if it is still this worker's and was not handed out again since.
DELETE FROM procrastinate_jobs
 WHERE id = %(id)s AND status = 'doing' AND worker_id = %(worker_id)s AND attempts = %(attempts)s;
