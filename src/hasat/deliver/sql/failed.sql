-- The endpoint did not take it: once more after a pause, or it is a dead letter.
WITH judged AS (
    SELECT id, %(final)s
               OR attempts + 1 >= %(max_attempts)s
               OR waiting_since + %(max_age)s < clock_timestamp() AS over
      FROM deliver.delivery
     WHERE id = %(id)s AND state = 'waiting'
       FOR UPDATE
)
UPDATE deliver.delivery AS d
   SET attempts = d.attempts + 1,
       last_status = %(status)s,
       last_error = %(error)s,
       next_at = clock_timestamp() + make_interval(secs => %(pause)s),
       state = CASE WHEN judged.over THEN 'dead' ELSE 'waiting' END,
       settled_at = CASE WHEN judged.over THEN clock_timestamp() END
  FROM judged
 WHERE d.id = judged.id
RETURNING d.state
