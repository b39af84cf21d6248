-- What waits for an endpoint that nobody sends to any more is a dead letter when its time is over.
UPDATE deliver.delivery
   SET state = 'dead', settled_at = clock_timestamp(),
       last_error = 'The endpoint is no longer in the settings.'
 WHERE state = 'waiting' AND endpoint <> ALL (%(endpoints)s::text[])
   AND waiting_since + %(max_age)s < clock_timestamp()
