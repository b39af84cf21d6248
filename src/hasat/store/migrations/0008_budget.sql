-- Who may ask an upstream now, and what was asked of it.

-- The clock that decides. A test or a simulation puts another one in its place.
CREATE FUNCTION budget.now() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT clock_timestamp()';

-- One row an upstream: its rules, as the process that declared them last knows them.
CREATE TABLE budget.upstream (
    name            text PRIMARY KEY,
    zone            text NOT NULL,
    day_limit       bigint,
    target          float8 NOT NULL,
    minute_limit    integer,
    minute_hard     integer,
    opening_seconds integer NOT NULL,
    endpoint_limit  bigint,
    endpoint_seconds float8 NOT NULL,
    has_endpoints   boolean NOT NULL,
    shadow          boolean NOT NULL,
    -- Lanes by worth; position i of each list speaks of lane i.
    lanes           text[] NOT NULL,
    keeps           bigint[] NOT NULL,
    keep_shares     float8[] NOT NULL,
    needs           bigint[] NOT NULL,
    paced           boolean[] NOT NULL,
    early           boolean[] NOT NULL,
    shares          float8[] NOT NULL,
    -- 26 values a lane: what the lanes above it will need from hour 0, 1, ... to the day's end.
    promised        float8[] NOT NULL DEFAULT '{}'
);

-- One row a quota day: yesterday's troubles end with yesterday's row. Whoever grants holds the lock
-- of today's, for the length of one statement.
CREATE TABLE budget.day (
    upstream       text NOT NULL,
    day            date NOT NULL,
    starts_at      timestamptz NOT NULL,
    ends_at        timestamptz NOT NULL,
    spent          bigint NOT NULL DEFAULT 0,
    written_off    bigint NOT NULL DEFAULT 0,
    foreign_use    bigint NOT NULL DEFAULT 0,
    plan           bigint,
    minute_plan    integer,
    exhausted_at   timestamptz,
    -- From here on each day takes over what the day before had. The two times are when the last
    -- grant was due, which may be a little before it was given.
    sent_at        timestamptz NOT NULL,
    paced_at       timestamptz NOT NULL,
    slow           float8 NOT NULL DEFAULT 1,
    slowed_at      timestamptz NOT NULL DEFAULT 'epoch',
    paused_until   timestamptz NOT NULL DEFAULT 'epoch',
    waiting        timestamptz[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (upstream, day)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
COMMENT ON COLUMN budget.day.written_off IS 'of spent: charged for what a crash of the server may have forgotten';
COMMENT ON COLUMN budget.day.foreign_use IS 'what others spent on the same key, by the upstream''s own count';
COMMENT ON COLUMN budget.day.plan IS 'the least day limit that the upstream stated';
COMMENT ON COLUMN budget.day.waiting IS 'until when a lane counts as waiting; lower ones let it pass';

-- Who is in here remembers all that was granted: after a crash PostgreSQL itself empties this table.
CREATE UNLOGGED TABLE budget.no_crash (upstream text PRIMARY KEY);

-- Endpoints with a window of their own.
CREATE TABLE budget.endpoint (
    upstream   text NOT NULL,
    name       text NOT NULL,
    day_limit  bigint,
    seconds    float8 NOT NULL,
    sent_at    timestamptz NOT NULL DEFAULT 'epoch',
    rest_until timestamptz NOT NULL DEFAULT 'epoch',
    PRIMARY KEY (upstream, name)
) WITH (fillfactor = 50);

CREATE TABLE budget.endpoint_day (
    upstream     text NOT NULL,
    endpoint     text NOT NULL,
    day          date NOT NULL,
    spent        bigint NOT NULL DEFAULT 0,
    exhausted_at timestamptz,
    PRIMARY KEY (upstream, day, endpoint)
) WITH (fillfactor = 50);

-- Who spent what, by the hour of the quota day: small enough to keep and to learn from.
CREATE TABLE budget.usage (
    upstream       text NOT NULL,
    day            date NOT NULL,
    lane           text NOT NULL,
    job            text NOT NULL,
    hour           smallint NOT NULL,
    units          bigint NOT NULL DEFAULT 0,
    grants         bigint NOT NULL DEFAULT 0,
    waits          bigint NOT NULL DEFAULT 0,
    waited_seconds float8 NOT NULL DEFAULT 0,
    refusals       bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (upstream, day, lane, job, hour)
) WITH (fillfactor = 50);

-- The ledger: every request that was granted. Without an outcome it had no answer, and is spent.
CREATE TABLE budget.request (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at             timestamptz NOT NULL,
    upstream       text NOT NULL,
    day            date NOT NULL,
    lane           text NOT NULL,
    job            text NOT NULL,
    run            bigint,
    endpoint       text,
    cost           integer NOT NULL,
    waited_seconds real NOT NULL,
    would_have     text,
    outcome        text,
    latency_ms     real,
    day_left       bigint,
    minute_left    integer
) WITH (fillfactor = 80);
CREATE INDEX request_at ON budget.request USING brin (at) WITH (pages_per_range = 16, autosummarize = on);
COMMENT ON COLUMN budget.request.would_have IS 'in shadow mode: why it would not have been granted';

-- For each lane and hour: what the lanes above it are likely to need from then to the day's end.
-- The mean of the last seven days that have a ledger, or the same weekday's if that was more;
-- what was declared as long as there is none, and less of it where the upstream stated a smaller
-- plan. A paced lane takes what is left and needs nothing.
CREATE FUNCTION budget.promised(_u budget.upstream, _day date) RETURNS float8[]
LANGUAGE sql STABLE AS $$
    WITH days AS (
        SELECT count(DISTINCT day)::float8 AS n FROM budget.usage
        WHERE upstream = (_u).name AND day BETWEEN _day - 7 AND _day - 1
    ), stated AS (
        SELECT coalesce(least(1, min(plan)::float8 / nullif((_u).day_limit, 0)), 1) AS share
        FROM budget.day WHERE upstream = (_u).name AND day BETWEEN _day - 7 AND _day
    ), lane AS (
        SELECT name, no, paced, need
        FROM unnest((_u).lanes, (_u).paced, (_u).needs) WITH ORDINALITY AS l (name, paced, need, no)
    ), need AS (
        SELECT lane.no, slot, CASE
            WHEN lane.paced OR slot = 25 THEN 0
            WHEN days.n = 0 THEN lane.need * stated.share * greatest(0, 24 - slot) / 24.0
            ELSE greatest(
                coalesce(sum(s.units), 0) / days.n,
                coalesce(sum(s.units) FILTER (WHERE s.day = _day - 7), 0)
            ) END AS units
        FROM days, stated, lane CROSS JOIN generate_series(0, 25) AS slot
        LEFT JOIN budget.usage s ON s.upstream = (_u).name AND s.lane = lane.name
            AND s.day BETWEEN _day - 7 AND _day - 1 AND s.hour >= slot
        GROUP BY lane.no, lane.paced, lane.need, slot, days.n, stated.share
    )
    SELECT array_agg(above ORDER BY no, slot) FROM (
        SELECT no, slot, coalesce(sum(units) OVER (
            PARTITION BY slot ORDER BY no ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0)::float8 AS above
        FROM need
    ) AS summed
$$;

-- The share of its rate that an upstream is asked at: cut when it complains, a tenth back a minute.
CREATE FUNCTION budget.pace(_slow float8, _slowed_at timestamptz, _at timestamptz) RETURNS float8
LANGUAGE sql IMMUTABLE AS $$
    SELECT least(1, _slow + floor(extract(epoch FROM _at - _slowed_at)::float8 / 60) / 10)
$$;

-- What is left of the day, by our own count or the upstream's, whichever is less.
CREATE FUNCTION budget.remaining(
    _limit bigint, _plan bigint, _spent bigint, _foreign_use bigint, _exhausted_at timestamptz
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN _exhausted_at IS NOT NULL THEN 0 ELSE greatest(
        0, least(_limit - _spent, coalesce(_plan, _limit) - _spent - _foreign_use)
    ) END
$$;

-- What a lane leaves alone: its reserve, which a small plan makes smaller, and for a paced one all
-- beyond the day's target.
CREATE FUNCTION budget.kept(
    _keep bigint, _share float8, _paced boolean, _limit bigint, _plan bigint, _target float8
) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(
        least(_keep, floor(least(_limit, _plan) * _share + 1e-6)::bigint),
        CASE WHEN _paced
            THEN least(_limit, _plan) - floor(least(_limit, _plan) * _target + 1e-6)::bigint
        END
    )
$$;

-- What the lanes above one will need before the day ends, so many hours into it.
CREATE FUNCTION budget.promised_above(_promised float8[], _lane integer, _hours float8)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    slot integer := (_lane - 1) * 26 + 1 + floor(_hours)::integer;
BEGIN
    IF _lane = 1 OR _hours >= 25 THEN
        RETURN 0;
    END IF;
    RETURN ceil(
        _promised[slot] + (_promised[slot + 1] - _promised[slot]) * (_hours - floor(_hours)) - 1e-6
    )::bigint;
END
$$;

-- Whether another lane that waits has the next slot: the one of most worth; but among paced lanes
-- one that is behind its share goes first, or it had no turn as long as the higher has work.
CREATE FUNCTION budget.must_let_pass(
    _u budget.upstream, _d budget.day, _i integer, _at timestamptz
) RETURNS boolean LANGUAGE sql STABLE AS $$
    WITH lane AS (
        SELECT no, paced, share, mark > _at AND no <> _i AS waits, coalesce(spent.units, 0) AS units
        FROM unnest((_u).lanes, (_u).paced, (_u).shares, (_d).waiting)
            WITH ORDINALITY AS l (name, paced, share, mark, no)
        LEFT JOIN LATERAL (
            SELECT sum(units) AS units FROM budget.usage
            WHERE upstream = (_u).name AND day = (_d).day AND lane = l.name AND l.paced
        ) AS spent ON true
    ), ranked AS (
        SELECT no, paced, waits,
            paced AND units < share * sum(units) FILTER (WHERE paced) OVER () AS behind
        FROM lane
    )
    SELECT coalesce(bool_or(other.waits AND CASE
        WHEN NOT other.paced THEN other.no < _i
        WHEN NOT me.paced THEN false
        WHEN other.behind = me.behind THEN other.no < _i
        ELSE other.behind
    END), false)
    FROM ranked AS other CROSS JOIN ranked AS me
    WHERE me.no = _i
$$;

-- The newest day of an upstream, locked.
CREATE FUNCTION budget.lock_newest_day(_upstream text) RETURNS budget.day LANGUAGE plpgsql AS $$
DECLARE
    d budget.day;
BEGIN
    LOOP
        SELECT * INTO d FROM budget.day WHERE upstream = _upstream ORDER BY day DESC LIMIT 1
        FOR NO KEY UPDATE;
        -- While we waited, a newer one may have been made.
        EXIT WHEN NOT EXISTS (SELECT FROM budget.day WHERE upstream = _upstream AND day > d.day);
    END LOOP;
    RETURN d;
END
$$;

-- Begin a quota day; pauses and what smooths the rate go on. The first day ever starts empty.
CREATE FUNCTION budget.begin_day(_u budget.upstream, _day date, _at timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    before budget.day := budget.lock_newest_day(_u.name);
BEGIN
    INSERT INTO budget.day (
        upstream, day, starts_at, ends_at,
        sent_at, paced_at, slow, slowed_at, paused_until
    ) VALUES (
        _u.name, _day, _day::timestamp AT TIME ZONE _u.zone,
        (_day + 1)::timestamp AT TIME ZONE _u.zone,
        coalesce(before.sent_at, _at), coalesce(before.paced_at, _at), coalesce(before.slow, 1),
        coalesce(before.slowed_at, 'epoch'), coalesce(before.paused_until, 'epoch')
    ) ON CONFLICT (upstream, day) DO NOTHING;
    -- Only who made the day: he holds its row, and everybody locks the day before the upstream.
    IF FOUND THEN
        IF before.upstream IS NULL THEN
            INSERT INTO budget.no_crash VALUES (_u.name) ON CONFLICT DO NOTHING;
        END IF;
        UPDATE budget.upstream SET promised = budget.promised(_u, _day) WHERE name = _u.name;
    END IF;
END
$$;

CREATE FUNCTION budget.acquire(
    _upstream text, _lane text, _cost integer, _endpoint text, _job text, _run bigint,
    _waited float8,
    OUT verdict text, OUT reason text, OUT wait float8, OUT until timestamptz,
    OUT request bigint, OUT quota_day date, OUT new_day boolean
) LANGUAGE plpgsql AS $$
DECLARE
    u budget.upstream;
    d budget.day;
    e budget.endpoint;
    e_day budget.endpoint_day;
    i integer;
    t timestamptz;
    opens timestamptz;
    slot integer;
    hours float8;
    rate float8;
    burst integer := 0;
    step float8 := 0;
    lost bigint;
    remaining bigint;
    keep bigint;
    spendable bigint;
    pace_from timestamptz;
    pace_seconds float8 := 0;
    would text;
    candidate float8;
BEGIN
    SELECT * INTO u FROM budget.upstream WHERE name = _upstream;
    i := array_position(u.lanes, _lane);
    IF i IS NULL THEN
        verdict := 'undeclared';
        RETURN;
    END IF;
    new_day := false;
    LOOP
        t := budget.now();
        quota_day := (t AT TIME ZONE u.zone)::date;
        SELECT * INTO d FROM budget.day WHERE upstream = _upstream AND day = quota_day
        FOR NO KEY UPDATE;
        IF FOUND THEN
            -- After the lock, so that time does not run backwards from grant to grant.
            t := budget.now();
            EXIT WHEN (t AT TIME ZONE u.zone)::date = quota_day;
        ELSE
            PERFORM budget.begin_day(u, quota_day, t);
            SELECT * INTO u FROM budget.upstream WHERE name = _upstream;
            new_day := true;
        END IF;
    END LOOP;
    hours := greatest(0, extract(epoch FROM t - d.starts_at)::float8 / 3600);
    slot := least(24, floor(hours)::integer);

    IF u.minute_limit IS NOT NULL THEN
        rate := least(u.minute_limit, d.minute_plan * u.minute_limit::float8 / u.minute_hard)
            * budget.pace(d.slow, d.slowed_at, t);
        -- With one slot to catch up with, rate - 1 a minute is never more than rate in any minute.
        burst := CASE WHEN rate >= 20 THEN 1 ELSE 0 END;
        step := 60 / greatest(rate - burst, 0.1);
        -- A crash of the server can forget what this window lets through in that time, not more;
        -- so it is charged after each crash, and nobody waits for a disk.
        PERFORM set_config('synchronous_commit', 'off', true);
        IF NOT EXISTS (SELECT FROM budget.no_crash WHERE upstream = _upstream) THEN
            INSERT INTO budget.no_crash VALUES (_upstream) ON CONFLICT DO NOTHING;
            SELECT ceil(3 * setting::float8 / 1000 / step)::bigint INTO lost
            FROM pg_settings WHERE name = 'wal_writer_delay';
            UPDATE budget.day SET
                spent = spent + lost,
                written_off = written_off + lost,
                sent_at = greatest(sent_at, t)
            WHERE upstream = _upstream AND day = quota_day
            RETURNING * INTO d;
        END IF;
    END IF;

    -- What cannot be had today.
    IF u.day_limit IS NOT NULL THEN
        remaining := budget.remaining(
            u.day_limit, d.plan, d.spent, d.foreign_use, d.exhausted_at
        );
        keep := budget.kept(
            u.keeps[i], u.keep_shares[i], u.paced[i], u.day_limit, d.plan, u.target
        );
        spendable := remaining - keep;
        IF i > 1 THEN
            spendable := spendable - budget.promised_above(u.promised, i, hours);
        END IF;
        IF spendable < _cost THEN
            reason := CASE
                WHEN d.exhausted_at IS NOT NULL THEN 'exhausted'
                WHEN remaining - keep < _cost THEN 'spent'
                ELSE 'reserved'
            END;
        END IF;
        opens := d.starts_at + make_interval(secs => u.opening_seconds);
    END IF;
    IF _endpoint IS NOT NULL AND u.has_endpoints THEN
        SELECT * INTO e FROM budget.endpoint WHERE upstream = _upstream AND name = _endpoint;
        IF NOT FOUND THEN
            INSERT INTO budget.endpoint (upstream, name, day_limit, seconds)
            VALUES (_upstream, _endpoint, u.endpoint_limit, u.endpoint_seconds)
            RETURNING * INTO e;
        END IF;
        SELECT * INTO e_day FROM budget.endpoint_day
        WHERE upstream = _upstream AND day = quota_day AND endpoint = _endpoint;
        IF e_day.exhausted_at IS NOT NULL THEN
            reason := coalesce(reason, 'endpoint_exhausted');
        ELSIF coalesce(e_day.spent, 0) + _cost > e.day_limit THEN
            reason := coalesce(reason, 'endpoint_spent');
        END IF;
    END IF;
    IF reason IS NOT NULL THEN
        IF NOT u.shadow THEN
            verdict := 'refused';
            until := d.ends_at;
            UPDATE budget.usage SET refusals = refusals + 1
            WHERE upstream = _upstream AND day = quota_day AND lane = _lane AND job = _job
              AND hour = slot;
            IF NOT FOUND THEN
                INSERT INTO budget.usage (upstream, day, lane, job, hour, refusals)
                VALUES (_upstream, quota_day, _lane, _job, slot, 1);
            END IF;
            RETURN;
        END IF;
        would := reason;
    END IF;

    -- What cannot be had yet: the longest wait counts.
    wait := 0;
    IF u.minute_limit IS NOT NULL THEN
        candidate := extract(epoch FROM d.sent_at - t)::float8 + step;
        IF candidate > wait THEN wait := candidate; reason := 'minute'; END IF;
    END IF;
    IF d.paused_until > t THEN
        candidate := extract(epoch FROM d.paused_until - t)::float8;
        IF candidate > wait THEN wait := candidate; reason := 'paused'; END IF;
    END IF;
    IF e.name IS NOT NULL THEN
        candidate := greatest(
            extract(epoch FROM e.sent_at - t)::float8 + e.seconds,
            extract(epoch FROM e.rest_until - t)::float8
        );
        IF candidate > wait THEN wait := candidate; reason := 'endpoint'; END IF;
    END IF;
    IF u.day_limit IS NOT NULL THEN
        IF t < opens AND NOT u.early[i] THEN
            candidate := extract(epoch FROM opens - t)::float8;
            IF candidate > wait THEN wait := candidate; reason := 'opening'; END IF;
        END IF;
        IF u.paced[i] THEN
            -- Even steps from here to shortly before the end, by what is left now.
            pace_seconds := greatest(0, extract(epoch FROM d.ends_at - t)::float8 - u.opening_seconds)
                * _cost / greatest(spendable, 1);
            pace_from := greatest(d.paced_at, opens);
            candidate := extract(epoch FROM pace_from - t)::float8 + pace_seconds;
            IF candidate > wait THEN wait := candidate; reason := 'paced'; END IF;
        END IF;
    END IF;
    IF wait = 0 AND d.waiting <> '{}' AND budget.must_let_pass(u, d, i, t) THEN
        wait := greatest(step, 0.01);
        reason := 'turn';
    END IF;
    IF wait > 0 THEN
        IF NOT u.shadow THEN
            verdict := 'wait';
            until := t + make_interval(secs => wait);
            IF reason IN ('minute', 'paused', 'paced', 'turn') THEN
                IF d.waiting = '{}' THEN
                    d.waiting := array_fill(NULL::timestamptz, ARRAY[cardinality(u.lanes)]);
                END IF;
                d.waiting[i] := t + make_interval(secs => least(wait, 5) + 1);
                UPDATE budget.day SET waiting = d.waiting
                WHERE upstream = _upstream AND day = quota_day;
            END IF;
            RETURN;
        END IF;
        would := coalesce(would, reason);
    END IF;

    verdict := 'granted';
    reason := NULL;
    IF d.waiting <> '{}' THEN
        d.waiting[i] := NULL;
        d.waiting := CASE WHEN EXISTS (SELECT FROM unnest(d.waiting) AS mark WHERE mark > t)
            THEN d.waiting ELSE '{}' END;
    END IF;
    UPDATE budget.day SET
        spent = spent + _cost,
        sent_at = least(t, greatest(
            d.sent_at + make_interval(secs => step), t - make_interval(secs => burst * step)
        )),
        paced_at = CASE WHEN pace_from IS NULL THEN d.paced_at ELSE least(t, greatest(
            pace_from + make_interval(secs => pace_seconds), t - interval '5 minutes'
        )) END,
        waiting = d.waiting
    WHERE upstream = _upstream AND day = quota_day;
    IF e.name IS NOT NULL THEN
        UPDATE budget.endpoint SET sent_at = t WHERE upstream = _upstream AND name = _endpoint;
        INSERT INTO budget.endpoint_day AS known (upstream, endpoint, day, spent)
        VALUES (_upstream, _endpoint, quota_day, _cost)
        ON CONFLICT (upstream, day, endpoint) DO UPDATE SET spent = known.spent + excluded.spent;
    END IF;
    UPDATE budget.usage SET
        units = units + _cost,
        grants = grants + 1,
        waits = waits + (_waited > 0)::integer,
        waited_seconds = waited_seconds + _waited
    WHERE upstream = _upstream AND day = quota_day AND lane = _lane AND job = _job
      AND hour = slot;
    IF NOT FOUND THEN
        INSERT INTO budget.usage
            (upstream, day, lane, job, hour, units, grants, waits, waited_seconds)
        VALUES (
            _upstream, quota_day, _lane, _job, slot, _cost, 1, (_waited > 0)::integer,
            _waited
        );
    END IF;
    INSERT INTO budget.request
        (at, upstream, day, lane, job, run, endpoint, cost, waited_seconds, would_have)
    VALUES (t, _upstream, quota_day, _lane, _job, _run, _endpoint, _cost, _waited, would)
    RETURNING id INTO request;
END
$$;

-- Slow an upstream down for everybody, and pause it. Of answers to requests that were under way
-- together only the first cuts the rate.
CREATE FUNCTION budget.slow_down(
    _upstream text, _factor float8, _pause float8, _granted_at timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    d budget.day := budget.lock_newest_day(_upstream);
    t timestamptz := budget.now();
BEGIN
    IF coalesce(_granted_at, t) > d.slowed_at THEN
        d.slow := greatest(0.1, budget.pace(d.slow, d.slowed_at, t) * _factor);
        d.slowed_at := t;
    END IF;
    UPDATE budget.day SET
        slow = d.slow,
        slowed_at = d.slowed_at,
        paused_until = greatest(d.paused_until, t + make_interval(secs => _pause))
    WHERE upstream = _upstream AND day = d.day;
END
$$;

-- What became of a request. The day is locked only if the answer corrects it.
CREATE FUNCTION budget.settle(
    _request bigint, _outcome text, _latency_ms float8, _retry_after float8,
    _day_left bigint, _day_limit bigint, _minute_left integer, _minute_limit integer
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    r budget.request;
    u budget.upstream;
    d budget.day;
    newest budget.day;
    t timestamptz;
    opens timestamptz;
    windowed boolean;
    limited boolean := _outcome IN ('minute_limited', 'day_exhausted');
    margin float8;
BEGIN
    IF NOT limited THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    UPDATE budget.request SET
        outcome = _outcome, latency_ms = _latency_ms, day_left = _day_left,
        minute_left = _minute_left
    WHERE id = _request AND outcome IS NULL RETURNING * INTO r;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT * INTO u FROM budget.upstream WHERE name = r.upstream;
    SELECT * INTO d FROM budget.day WHERE upstream = r.upstream AND day = r.day;
    opens := d.starts_at + make_interval(secs => u.opening_seconds);
    IF r.at < opens THEN
        -- The upstream's own day may not have turned yet: its counts may be yesterday's.
        _day_left := NULL;
        _day_limit := NULL;
    END IF;
    -- What is left of a minute unless somebody else uses the key; of a smaller plan it is less.
    margin := (u.minute_hard - u.minute_limit) / 2.0
        * least(1, least(d.minute_plan, nullif(_minute_limit, 0))::float8 / u.minute_hard);
    IF NOT limited AND NOT (
        coalesce(_day_limit < least(d.plan, u.day_limit), false)
        OR coalesce(coalesce(_day_limit, d.plan, u.day_limit) - _day_left - d.spent > d.foreign_use, false)
        OR coalesce(_minute_limit < least(d.minute_plan, u.minute_hard), false)
        OR coalesce(_minute_left <= margin, false)
        -- The first word of the day about a limit is for people to see, whatever it is.
        OR (d.plan IS NULL AND coalesce(_day_limit, 0) > 0)
        OR (d.minute_plan IS NULL AND coalesce(_minute_limit, 0) > 0)
    ) THEN
        RETURN true;
    END IF;

    newest := budget.lock_newest_day(r.upstream);
    t := budget.now();
    UPDATE budget.day SET
        plan = least(plan, nullif(_day_limit, 0)),
        minute_plan = least(minute_plan, nullif(_minute_limit, 0)),
        -- All of ours that the upstream can have counted were granted by now.
        foreign_use = greatest(
            foreign_use, coalesce(_day_limit, plan, u.day_limit) - _day_left - spent
        )
    WHERE upstream = r.upstream AND day = r.day;
    IF _day_limit < least(d.plan, u.day_limit) THEN
        UPDATE budget.upstream SET promised = budget.promised(u, newest.day) WHERE name = u.name;
    END IF;
    IF _minute_left <= margin THEN
        UPDATE budget.day SET sent_at = greatest(
            sent_at, t + make_interval(secs => least(10, 60.0 / (_minute_left + 1)))
        ) WHERE upstream = r.upstream AND day = newest.day;
    END IF;
    windowed := u.has_endpoints AND r.endpoint IS NOT NULL;
    IF _outcome = 'minute_limited' THEN
        IF windowed THEN
            UPDATE budget.endpoint SET rest_until = greatest(
                rest_until, t + make_interval(secs => coalesce(_retry_after, 60))
            ) WHERE upstream = r.upstream AND name = r.endpoint;
        ELSE
            PERFORM budget.slow_down(r.upstream, 0.5, coalesce(_retry_after, 60), r.at);
        END IF;
    ELSIF _outcome = 'day_exhausted' THEN
        IF r.at < opens THEN
            -- It most likely speaks of yesterday: rest until the opening minutes are over, then ask.
            IF windowed THEN
                UPDATE budget.endpoint SET rest_until = greatest(rest_until, opens)
                WHERE upstream = r.upstream AND name = r.endpoint;
            ELSE
                UPDATE budget.day SET paused_until = greatest(paused_until, opens)
                WHERE upstream = r.upstream AND day = newest.day;
            END IF;
        ELSIF windowed THEN
            UPDATE budget.endpoint_day SET exhausted_at = coalesce(exhausted_at, t)
            WHERE upstream = r.upstream AND day = r.day AND endpoint = r.endpoint;
        ELSE
            UPDATE budget.day SET exhausted_at = coalesce(exhausted_at, t)
            WHERE upstream = r.upstream AND day = r.day;
        END IF;
    END IF;
    RETURN true;
END
$$;
