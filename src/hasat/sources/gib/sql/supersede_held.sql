-- Of the runs that wait for a decision only the newest go on waiting.
UPDATE gib.held
   SET state = 'superseded', decided_at = clock_timestamp()
 WHERE run IN (SELECT run FROM gib.held WHERE state = 'waiting' ORDER BY run DESC OFFSET %(most)s)
