-- When each match was last told of, and its details, where that got lost.
INSERT INTO football.fixture_told (fixture_id, told_at, details_at)
SELECT * FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[])
    ON CONFLICT DO NOTHING
