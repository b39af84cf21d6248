-- Nothing can be inferred about a match that is not there any more, or that has not begun.
DELETE FROM core.fixture_inferences AS i
 WHERE NOT EXISTS (SELECT FROM core.fixtures AS f
                    WHERE f.fixture_id = i.fixture_id AND (f.date <= clock_timestamp()) IS NOT FALSE)
