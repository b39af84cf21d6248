-- Take an endpoint for one request, if it is free, rested, within its day, and the upstream is open.
-- Nobody waits for a disk: a crash of the server forgets a moment of it, which the ledger has.
-- A learned limit may be passed by a little, or it could never be found to have grown.
UPDATE fetching.endpoint AS e
SET holder = %(holder)s,
    held_until = clock.now + make_interval(secs => %(lease)s),
    next_at = clock.now + make_interval(secs => %(apart)s),
    quota_day = clock.today,
    points = CASE WHEN e.quota_day = clock.today THEN e.points ELSE 0 END + %(points)s
FROM
    (
        SELECT clock_timestamp() AS now, (clock_timestamp() AT TIME ZONE %(zone)s)::date AS today,
            set_config('synchronous_commit', 'off', true) AS unhurried
    ) AS clock,
    fetching.upstream AS u
    LEFT JOIN fetching.latency AS l
        ON l.upstream = u.upstream AND l.url = %(url)s AND l.kind = %(kind)s
WHERE e.upstream = %(upstream)s AND e.url = %(url)s AND u.upstream = e.upstream
  AND (e.held_until IS NULL OR e.held_until <= clock.now)
  AND (e.next_at IS NULL OR e.next_at <= clock.now)
  AND (e.rest_until IS NULL OR e.rest_until <= clock.now)
  AND CASE WHEN e.quota_day = clock.today THEN e.points ELSE 0 END + %(points)s
      <= least(%(daily)s, e.learned + greatest(e.learned / 10, 20))
  AND (u.rest_level = 0 OR u.prober = %(holder)s OR u.refused_key <> %(key)s)
RETURNING
    e.points, e.learned, e.streak, e.rest_level,
    coalesce(l.mean, 0) AS mean,
    coalesce(l.weight, 0) AS weight,
    coalesce(extract(epoch FROM clock.now - l.measured_at), 0)::float8 AS measured_ago,
    l.sketch
