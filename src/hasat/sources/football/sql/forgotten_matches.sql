-- Matches that were told of and are not in the mirror any more, except those that come back now.
SELECT t.fixture_id
  FROM football.fixture_told AS t
 WHERE NOT EXISTS (SELECT FROM core.fixtures AS f WHERE f.fixture_id = t.fixture_id)
   AND NOT t.fixture_id = ANY (%(back)s)
