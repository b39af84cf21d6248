-- The endpoint took it.
UPDATE deliver.delivery
   SET state = 'delivered', settled_at = clock_timestamp(), last_status = %(status)s,
       last_error = NULL
 WHERE id = %(id)s AND state = 'waiting'
