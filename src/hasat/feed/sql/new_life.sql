-- The dataset begins anew: cursors and times of before must not be taken for this one's.
UPDATE feed.head
   SET epoch = gen_random_uuid(), floor = seq, records = 0,
       digest = '\x00000000000000000000000000000000',
       floor_at = greatest(clock_timestamp(), committed_at + interval '1 microsecond')
 WHERE dataset = %(dataset)s
