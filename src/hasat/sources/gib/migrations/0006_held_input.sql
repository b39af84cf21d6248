-- Where the lists of held runs are stored. A row is written before its file and deleted after it.
CREATE TABLE gib.held_input (
    run     bigint NOT NULL,
    name    text NOT NULL,
    path    text NOT NULL,
    sha256  bytea NOT NULL,
    size    bigint NOT NULL,
    machine text,
    PRIMARY KEY (run, name)
);
COMMENT ON COLUMN gib.held_input.machine IS 'the only machine that can load it; null: the object store';

-- Of runs that wait already no machine is known; the next synchronisation holds the same lists again.
UPDATE gib.held SET state = 'superseded', decided_at = clock_timestamp() WHERE state = 'waiting';
ALTER TABLE gib.held DROP COLUMN folder;
