-- Let settled deliveries wait again, under their old numbers: they go before all newer ones.
UPDATE deliver.delivery
   SET state = 'waiting', settled_at = NULL, attempts = 0,
       waiting_since = clock_timestamp(), next_at = clock_timestamp()
 WHERE state <> 'waiting'
   AND CASE WHEN %(ids)s::bigint[] IS NULL THEN state = 'dead' ELSE id = ANY (%(ids)s) END
   AND (%(endpoint)s::text IS NULL OR endpoint = %(endpoint)s)
RETURNING id
