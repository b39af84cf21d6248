-- What a run committed to the mirror, for runs that were cut off before they could say it themselves.
CREATE INDEX version_run ON feed.version (run);
CREATE INDEX version_dataset_version ON feed.version_dataset (version);
CREATE FUNCTION jobs.rows_stored(_run bigint) RETURNS bigint LANGUAGE sql STABLE
RETURN (SELECT coalesce(sum(d.added + d.modified + d.removed), 0)
          FROM feed.version AS v
          JOIN feed.version_dataset AS d ON d.version = v.id
         WHERE v.run = _run);
