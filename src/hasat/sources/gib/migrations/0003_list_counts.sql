-- What a run that finds a list unchanged still has to say of it.
ALTER TABLE gib.list
    ADD COLUMN rejected bigint NOT NULL DEFAULT 0,
    ADD COLUMN duplicates bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN gib.list.rejected IS 'Users that could not be read';
COMMENT ON COLUMN gib.list.duplicates IS 'records beyond the first of their taxpayer, merged with it';
