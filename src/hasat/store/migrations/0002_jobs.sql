-- When jobs run, and what happened when they did. The queue itself is procrastinate's.

-- One row per job of the catalogue, as the worker that started last knows it.
CREATE TABLE jobs.schedule (
    job         text PRIMARY KEY,
    source      text,
    lane        text NOT NULL,
    cron        text,
    zone        text NOT NULL,
    enabled     boolean NOT NULL,
    -- Every due time up to here was fired or passed over; moved only forward, by one worker at a time.
    fired_until timestamptz NOT NULL
);

-- One row per run, kept after the queue has forgotten it.
CREATE TABLE jobs.run (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job           text NOT NULL,
    params        jsonb NOT NULL DEFAULT '{}',
    trigger       text NOT NULL CHECK (trigger IN ('schedule', 'hand', 'retry')),
    scheduled_for timestamptz,
    queued_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at    timestamptz,
    finished_at   timestamptz,
    state         text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'finished')),
    outcome       text CHECK (outcome IN (
        'done', 'nothing', 'held', 'out_of_quota', 'skipped', 'failed', 'set_aside', 'interrupted'
    )),
    -- Starts that count: a run given back by a worker that was told to stop is not one.
    attempt       integer NOT NULL DEFAULT 0,
    worker        text,
    requests      bigint NOT NULL DEFAULT 0,
    rows_changed  bigint NOT NULL DEFAULT 0,
    message       text,
    error         text,
    detail        jsonb NOT NULL DEFAULT '{}',
    progress      jsonb,
    -- The row of procrastinate_jobs that stands for this run until it is finished.
    queue_id      bigint,
    CHECK ((state = 'finished') = (outcome IS NOT NULL)),
    CHECK ((state = 'finished') = (finished_at IS NOT NULL))
);

-- One firing per due time, whatever happens to jobs.schedule.
CREATE UNIQUE INDEX run_due ON jobs.run (job, scheduled_for) WHERE trigger = 'schedule';
CREATE INDEX run_by_job ON jobs.run (job, id DESC);
CREATE INDEX run_open ON jobs.run (job) WHERE state <> 'finished';
CREATE INDEX run_bad ON jobs.run (id DESC) WHERE outcome IN ('failed', 'set_aside', 'interrupted');
CREATE INDEX run_finished ON jobs.run (finished_at) WHERE state = 'finished';
