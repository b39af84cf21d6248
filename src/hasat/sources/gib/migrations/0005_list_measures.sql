-- What the guard and the reader compare the next list with.
ALTER TABLE gib.list
    ADD COLUMN usual_length bigint,
    ADD COLUMN agreed text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN gib.list.usual_length IS 'median length of its records in bytes; null before a list was measured';
COMMENT ON COLUMN gib.list.agreed IS 'doubts about a record that so much of the list shared that they are its format';
