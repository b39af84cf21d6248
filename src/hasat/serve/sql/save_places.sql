-- Where keys are in the feeds they follow; logins of browsers are left out.
INSERT INTO deliver.position AS p (sink, dataset, epoch, seq)
SELECT told.sink, told.dataset, told.epoch, told.seq
  FROM unnest(%(sinks)s::text[], %(datasets)s::text[], %(epochs)s::uuid[], %(seqs)s::bigint[])
       AS told (sink, dataset, epoch, seq)
  JOIN serve.api_key AS k ON told.sink = 'key:' || k.id AND k.made_from IS NULL
ON CONFLICT (sink, dataset) DO UPDATE
   SET epoch = excluded.epoch, seq = excluded.seq, at = clock_timestamp()
