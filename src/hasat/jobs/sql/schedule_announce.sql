-- What this worker knows of its jobs. A new or changed schedule counts from now; a mark in the
-- future (the clock was turned back) is pulled in, run_due still forbids a second firing.
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
