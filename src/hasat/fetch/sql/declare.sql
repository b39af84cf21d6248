-- Make sure that every endpoint of the upstream has a row.
WITH known AS (
    INSERT INTO fetching.upstream (upstream) VALUES (%(upstream)s) ON CONFLICT DO NOTHING
)
INSERT INTO fetching.endpoint (upstream, url)
SELECT %(upstream)s, url FROM unnest(%(urls)s::text[]) AS url
ON CONFLICT DO NOTHING
