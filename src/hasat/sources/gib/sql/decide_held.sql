-- Runs that waited for a decision when the mirror moved on.
UPDATE gib.held
   SET state = CASE WHEN run = %(approved)s THEN 'approved' ELSE 'superseded' END,
       decided_at = clock_timestamp()
 WHERE state = 'waiting'
