-- The time, and how far each job was fired.
SELECT clock.now, s.job, s.fired_until
  FROM (SELECT clock_timestamp() AS now) AS clock
  LEFT JOIN jobs.schedule AS s ON s.job = ANY(%(jobs)s);
