-- A run that waits for its turn; none if this due time was fired before.
INSERT INTO jobs.run (job, params, trigger, scheduled_for)
VALUES (%(job)s, %(params)s, %(trigger)s, %(scheduled_for)s)
ON CONFLICT (job, scheduled_for) WHERE trigger = 'schedule' DO NOTHING
RETURNING id;
