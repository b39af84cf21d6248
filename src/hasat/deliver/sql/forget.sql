-- Events past their keep, with their deliveries; none that still waits.
DELETE FROM deliver.event AS e
 WHERE at < clock_timestamp() - make_interval(days => %(days)s)
   AND handed_out
   AND NOT EXISTS (SELECT FROM deliver.delivery AS d WHERE d.event = e.id AND d.state = 'waiting')
