-- An archive could not be written.
INSERT INTO feed.archive_failure AS f (dataset, error)
VALUES (%(dataset)s, %(error)s)
ON CONFLICT (dataset) DO UPDATE
   SET failed_at = clock_timestamp(), failures = f.failures + 1, error = excluded.error
