-- Where there is no match any more, nothing can be inferred about it.
DELETE FROM core.fixture_inferences AS i
 WHERE NOT EXISTS (SELECT FROM core.fixtures AS f WHERE f.fixture_id = i.fixture_id)
