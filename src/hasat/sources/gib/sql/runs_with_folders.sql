-- Runs that work, or wait for a decision.
SELECT id FROM jobs.run WHERE state <> 'finished'
UNION
SELECT run FROM gib.held WHERE state = 'waiting'
