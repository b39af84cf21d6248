-- Leftovers that this writer may remove: its own, and those that nobody cared for in a day.
SELECT batch, names
  FROM feed.archive_leftover
 WHERE dataset = %(dataset)s
   AND (seat = %(seat)s OR since < clock_timestamp() - interval '1 day')
 ORDER BY since
