-- Matches marked as over that are due to be asked for; the attempt counts from now on.
UPDATE core.fixture_inferences
   SET attempts = attempts + 1, last_attempt_at = clock_timestamp()
 WHERE fixture_id IN (
        SELECT fixture_id
          FROM core.fixture_inferences
          JOIN core.fixtures USING (fixture_id)
         WHERE needs_score_verification AND league_id = ANY (%(leagues)s)
           AND (%(named)s OR last_attempt_at IS NULL
                OR (attempts < %(attempts)s AND last_attempt_at < clock_timestamp() - interval '25 minutes')
                OR last_attempt_at < clock_timestamp() - %(cooldown)s)
         ORDER BY last_attempt_at NULLS FIRST, fixture_id
         LIMIT %(limit)s
       )
RETURNING fixture_id
