-- All workers' signs of life, and the time.
SELECT clock.now, w.id, w.last_heartbeat
  FROM (SELECT clock_timestamp() AS now) AS clock
  LEFT JOIN procrastinate_workers AS w ON true;
