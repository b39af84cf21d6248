-- Which kinds of details the API just gave, and which of them as an empty list.
UPDATE football.fixture_told AS t
   SET empty_blocks = ARRAY(SELECT block FROM unnest(t.empty_blocks) AS block WHERE block <> ALL (given.blocks)
                            UNION
                            SELECT unnest(given.empty))
  FROM (SELECT fixture_id, array_agg(block) AS blocks, array_agg(block) FILTER (WHERE is_empty) AS empty
          FROM unnest(%(fixtures)s::bigint[], %(blocks)s::text[], %(empty)s::boolean[]) AS b (fixture_id, block, is_empty)
         GROUP BY fixture_id) AS given
 WHERE t.fixture_id = given.fixture_id
