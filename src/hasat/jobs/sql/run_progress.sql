-- How far an attempt is; touches nothing once the run is no longer this attempt's.
UPDATE jobs.run
   SET progress = coalesce(%(progress)s, progress), requests = requests + %(requests)s
 WHERE id = %(run)s AND attempt = %(attempt)s AND state = 'running';
