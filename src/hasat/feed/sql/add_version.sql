-- A new version of the source's datasets.
INSERT INTO feed.version (run, source, scope, committed_at)
VALUES (%(run)s, %(source)s, %(scope)s, %(at)s)
RETURNING id
