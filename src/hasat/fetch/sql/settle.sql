-- Write what came of a request and let the endpoint go; nothing if it has another holder by now.
-- In the first minutes of a day, a word about the day's end most likely speaks of yesterday.
WITH time AS (
    SELECT clock_timestamp() AS now, (clock_timestamp() AT TIME ZONE %(zone)s)::date AS today,
        set_config('synchronous_commit', 'off', true) AS unhurried
), clock AS (
    SELECT now, today,
        today::timestamp AT TIME ZONE %(zone)s + interval '10 minutes' AS opens
    FROM time
), mine AS (
    UPDATE fetching.endpoint AS e
    SET holder = NULL,
        held_until = NULL,
        rest_until = CASE
            WHEN %(until_day_ends)s AND clock.now < clock.opens THEN clock.opens
            WHEN %(until_day_ends)s THEN (clock.today + 1)::timestamp AT TIME ZONE %(zone)s
            WHEN %(rest)s::float8 IS NOT NULL THEN clock.now + make_interval(secs => %(rest)s)
            WHEN %(cancelled)s THEN e.rest_until
        END,
        rest_cause = CASE WHEN %(cancelled)s THEN e.rest_cause ELSE %(cause)s END,
        rest_level = %(rest_level)s,
        streak = %(streak)s,
        learned = CASE
            WHEN %(until_day_ends)s AND clock.now < clock.opens THEN e.learned
            ELSE %(learned)s
        END,
        last_outcome = CASE WHEN %(cancelled)s THEN e.last_outcome ELSE %(outcome)s END,
        last_at = CASE WHEN %(cancelled)s THEN e.last_at ELSE clock.now END,
        successes = e.successes + %(succeeded)s::int,
        failures = e.failures + %(failed)s::int,
        hedges = e.hedges + %(hedge)s::int,
        hedges_won = e.hedges_won + %(hedge_won)s::int,
        cancelled = e.cancelled + %(cancelled)s::int
    FROM clock
    WHERE e.upstream = %(upstream)s AND e.holder = %(holder)s
    RETURNING e.upstream, e.url, clock.now
)
INSERT INTO fetching.latency (upstream, url, kind, mean, weight, measured_at, sketch)
SELECT upstream, url, %(kind)s, %(mean)s, %(weight)s, now, %(sketch)s FROM mine
ON CONFLICT (upstream, url, kind) DO UPDATE
SET mean = excluded.mean, weight = excluded.weight, measured_at = excluded.measured_at,
    sketch = excluded.sketch
