-- Win the right to deal with a due time; one worker gets a row, all others none.
UPDATE jobs.schedule SET fired_until = %(due)s
 WHERE job = %(job)s AND fired_until < %(due)s
RETURNING job;
