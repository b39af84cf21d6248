-- A day that an upstream declared used up is re-checked at a growing interval, so that one wrong
-- response cannot silence it; and an operator can reopen it.

ALTER TABLE budget.day
    ADD COLUMN rechecks integer NOT NULL DEFAULT 0,
    ADD COLUMN rechecked_at timestamptz;
COMMENT ON COLUMN budget.day.rechecks IS 'how often it was re-checked whether the day is used up; each doubles the wait for the next';

-- When a closed day is re-checked next: after 15 minutes, then 30, 60, ... so at most six times a day.
-- Null while it is open, or when the next re-check would be due after its end.
CREATE FUNCTION budget.recheck_at(_d budget.day) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT at FROM (
        SELECT greatest((_d).exhausted_at, (_d).rechecked_at)
            + interval '15 minutes' * 2 ^ least((_d).rechecks, 10) AS at
    ) AS next
    WHERE (_d).exhausted_at IS NOT NULL AND at < (_d).ends_at
$$;

-- Take the re-check that is due, for one process only. By our own count there must be something left.
CREATE FUNCTION budget.claim_recheck(_upstream text, _cost integer) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    d budget.day := budget.lock_newest_day(_upstream);
    t timestamptz := budget.now();
BEGIN
    IF d.ends_at <= t OR d.paused_until > t OR budget.recheck_at(d) > t
        OR budget.recheck_at(d) IS NULL
        OR EXISTS (
            SELECT FROM budget.upstream WHERE name = _upstream AND day_limit - d.spent < _cost
        )
    THEN
        RETURN false;
    END IF;
    UPDATE budget.day SET rechecks = rechecks + 1, rechecked_at = t
    WHERE upstream = _upstream AND day = d.day;
    RETURN true;
END
$$;

-- Grant the one request of a claimed re-check; null if the day was reopened meanwhile.
CREATE FUNCTION budget.grant_recheck(
    _upstream text, _lane text, _cost integer, _endpoint text, _job text, _run bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    d budget.day := budget.lock_newest_day(_upstream);
    t timestamptz := budget.now();
    granted bigint;
BEGIN
    IF d.exhausted_at IS NULL OR d.ends_at <= t THEN
        RETURN NULL;
    END IF;
    UPDATE budget.day SET spent = spent + _cost, sent_at = greatest(sent_at, t)
    WHERE upstream = _upstream AND day = d.day;
    INSERT INTO budget.usage AS known (upstream, day, lane, job, hour, units, grants)
    VALUES (
        _upstream, d.day, _lane, _job,
        least(24, floor(extract(epoch FROM t - d.starts_at) / 3600)), _cost, 1
    )
    ON CONFLICT (upstream, day, lane, job, hour) DO UPDATE SET
        units = known.units + excluded.units, grants = known.grants + 1;
    INSERT INTO budget.request (at, upstream, day, lane, job, run, endpoint, cost, waited_seconds)
    VALUES (t, _upstream, d.day, _lane, _job, _run, _endpoint, _cost, 0)
    RETURNING id INTO granted;
    RETURN granted;
END
$$;

-- The response to a re-check's request: the day is open again if it was granted after the closing.
CREATE FUNCTION budget.reopen_after(_request bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE budget.day AS d SET exhausted_at = NULL
    FROM budget.request AS r
    WHERE r.id = _request AND d.upstream = r.upstream AND d.day = r.day AND d.exhausted_at < r.at
$$;

-- An operator's decision: what an upstream stated today about its limits is void until it states it
-- again. False if there was nothing to reopen.
CREATE FUNCTION budget.reopen(_upstream text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    d budget.day := budget.lock_newest_day(_upstream);
    endpoints integer;
BEGIN
    UPDATE budget.day SET exhausted_at = NULL, foreign_use = 0, plan = NULL
    WHERE upstream = _upstream AND day = d.day;
    UPDATE budget.endpoint_day SET exhausted_at = NULL
    WHERE upstream = _upstream AND day = d.day AND exhausted_at IS NOT NULL;
    GET DIAGNOSTICS endpoints = ROW_COUNT;
    RETURN d.exhausted_at IS NOT NULL OR d.foreign_use > 0 OR endpoints > 0;
END
$$;
