-- The endpoints whose failures made an upstream rest, so that others are not held up by it.
ALTER TABLE fetching.upstream ADD COLUMN rest_urls text[];
COMMENT ON COLUMN fetching.upstream.rest_urls IS 'the endpoints that were declared when the rest began; it holds for no others';
