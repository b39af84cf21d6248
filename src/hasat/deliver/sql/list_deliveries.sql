-- Deliveries, newest first.
SELECT d.id, e.message_id, d.endpoint, e.kind, e.severity, e.summary, e.payload, e.at, d.state,
       d.attempts, d.next_at, d.settled_at, d.last_status, d.last_error
  FROM deliver.delivery AS d
  JOIN deliver.event AS e ON e.id = d.event
 WHERE (%(id)s::bigint IS NULL OR d.id = %(id)s)
   AND (%(endpoint)s::text IS NULL OR d.endpoint = %(endpoint)s)
   AND (%(state)s::text IS NULL OR d.state = %(state)s)
   AND (%(before)s::bigint IS NULL OR d.id < %(before)s)
 ORDER BY d.id DESC
 LIMIT %(limit)s
