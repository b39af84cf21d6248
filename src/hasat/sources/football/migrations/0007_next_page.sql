-- The original's counter of a backfill, for those who watch it grow. Nothing is decided by it: the
-- cursor is the date.
ALTER TABLE core.backfill_progress ADD COLUMN next_page integer
    GENERATED ALWAYS AS (coalesce(next_date - first_date, 0) + 1) STORED;
COMMENT ON COLUMN core.backfill_progress.next_page IS 'the first day, counted from 1, that is not in the mirror yet';
