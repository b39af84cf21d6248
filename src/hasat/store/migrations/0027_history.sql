-- The states of records that ended before the change retention: what expired changes leave behind.
-- With `feed.change`, which has the later ones, it is the whole life of every record. `valid_from` is
-- the `valid_to` of the record's state before (feed.past_state has it), so that a commit writes
-- without reading.
CREATE TABLE feed.history (
    dataset  text NOT NULL,
    key      text COLLATE "C" NOT NULL,
    seq      bigint NOT NULL,
    version  bigint NOT NULL,
    body     jsonb,
    valid_to timestamptz NOT NULL,
    PRIMARY KEY (dataset, key, valid_to)
);
CREATE INDEX history_valid_to ON feed.history USING brin (valid_to);
COMMENT ON COLUMN feed.history.seq IS 'the change that ended the state; where a new epoch did, the last one before it';
COMMENT ON COLUMN feed.history.body IS 'the state that ended; null: until then there was no record';

-- A deleted change leaves the state that it ended, in the statement that deletes it, whoever does.
CREATE FUNCTION feed.save_ended_states() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO feed.history (dataset, key, seq, version, body, valid_to)
    SELECT dataset, key, seq, version, before, changed_at FROM expired;
    RETURN NULL;
END
$$;
CREATE TRIGGER save_ended_states AFTER DELETE ON feed.change
    REFERENCING OLD TABLE AS expired
    FOR EACH STATEMENT EXECUTE FUNCTION feed.save_ended_states();

-- Spans of time, without their ends, of which the state is not known: before the retention
-- (after = -infinity), and after the newest commit of a backup until it was restored.
CREATE TABLE feed.history_gap (
    dataset text NOT NULL,
    after   timestamptz NOT NULL,
    until   timestamptz NOT NULL,
    PRIMARY KEY (dataset, after)
);
-- What retention deleted before this version is gone.
INSERT INTO feed.history_gap (dataset, after, until)
SELECT dataset, '-infinity', floor_at FROM feed.head WHERE floor_at IS NOT NULL;

-- Every past state with its interval of validity; a null `valid_from` is the first version.
CREATE VIEW feed.past_state AS
SELECT dataset, key, body, valid_from, valid_to
  FROM (
        SELECT dataset, key, body, valid_to,
               lag(valid_to) OVER (PARTITION BY dataset, key ORDER BY valid_to) AS valid_from
          FROM (
                SELECT dataset, key, body, valid_to FROM feed.history
                UNION ALL
                SELECT dataset, key, before, changed_at FROM feed.change
               ) AS ended
       ) AS intervals
 WHERE body IS NOT NULL;
