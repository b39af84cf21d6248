-- Where each dataset stands, with the totals that are stored beside it.
SELECT dataset, source, records, seq, committed_at FROM feed.head ORDER BY source, dataset
