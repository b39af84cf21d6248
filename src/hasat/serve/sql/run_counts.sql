-- Runs by job, state and outcome, with the end of the newest of each.
SELECT job, state, outcome, count(*) AS runs, max(finished_at) AS last_finished_at
FROM jobs.run
GROUP BY job, state, outcome
ORDER BY job, state, outcome;
