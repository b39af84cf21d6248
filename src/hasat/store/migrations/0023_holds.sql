-- Runs that the guard of any source holds until somebody decides. The id is that of the held run.
CREATE TABLE feed.hold (
    id         bigint PRIMARY KEY,
    job        text NOT NULL,
    source     text,
    datasets   text[] NOT NULL,
    scopes     jsonb NOT NULL DEFAULT '{}',
    params     jsonb NOT NULL,
    state      text NOT NULL DEFAULT 'waiting'
               CHECK (state IN ('waiting', 'approved', 'rejected', 'superseded')),
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    runs       bigint[] NOT NULL,
    seconds    float8 NOT NULL DEFAULT 0,
    preview    jsonb NOT NULL,
    decided_at timestamptz,
    decided_by text,
    reason     text,
    announced  boolean NOT NULL DEFAULT false
);
COMMENT ON COLUMN feed.hold.runs IS 'the runs with this finding, oldest first; the first is the id';
COMMENT ON COLUMN feed.hold.scopes IS 'the scope of the held run by dataset';
COMMENT ON COLUMN feed.hold.announced IS 'whether the event of the newest of its runs is published';
CREATE INDEX hold_waiting ON feed.hold (id) WHERE state = 'waiting';
CREATE INDEX hold_unannounced ON feed.hold (id) WHERE NOT announced;

-- Where the input of held runs is stored. A row is written before its file and deleted after it.
CREATE TABLE feed.held_input (
    run     bigint NOT NULL,
    name    text NOT NULL,
    path    text NOT NULL,
    sha256  bytea NOT NULL,
    size    bigint NOT NULL,
    machine text,
    PRIMARY KEY (run, name)
);
COMMENT ON COLUMN feed.held_input.machine IS 'the only machine that can load it; null: the object store';
