-- When each match of the mirror was last told of, and its details, where that got lost; which of these
-- were empty comes as `events,lineups`.
INSERT INTO football.fixture_told (fixture_id, told_at, details_at, empty_blocks)
SELECT t.fixture_id, t.told_at, t.details_at, string_to_array(t.empty, ',')
  FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::text[])
       AS t (fixture_id, told_at, details_at, empty)
 WHERE EXISTS (SELECT FROM core.fixtures AS f WHERE f.fixture_id = t.fixture_id)
    ON CONFLICT DO NOTHING
