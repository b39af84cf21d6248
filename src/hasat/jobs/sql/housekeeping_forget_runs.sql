-- Finished runs past their keep; the last one of each job stays, so that it can be shown.
DELETE FROM jobs.run AS r
 WHERE r.state = 'finished'
   AND r.finished_at < clock_timestamp() - make_interval(days => %(days)s)
   AND EXISTS (SELECT FROM jobs.run AS newer WHERE newer.job = r.job AND newer.id > r.id);
