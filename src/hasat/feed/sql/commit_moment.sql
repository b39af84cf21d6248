-- When this version counts as committed: later than every earlier one, whatever the clock says.
SELECT greatest(clock_timestamp(), max(committed_at) + interval '1 microsecond')
  FROM feed.head WHERE dataset = ANY (%(datasets)s)
