-- An endpoint's oldest waiting delivery, if it is due: none overtakes another.
SELECT d.id, e.message_id, e.kind, e.severity, e.summary, e.payload, e.at, d.attempts
  FROM deliver.event AS e
  JOIN (SELECT * FROM deliver.delivery
         WHERE endpoint = %(endpoint)s AND state = 'waiting'
         ORDER BY id
         LIMIT 1) AS d ON d.event = e.id
 WHERE d.next_at <= clock_timestamp()
