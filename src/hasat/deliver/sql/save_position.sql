-- Up to where a dataset's changes were passed on.
INSERT INTO deliver.position AS p (sink, dataset, epoch, seq)
VALUES ('nats', %(dataset)s, %(epoch)s, %(seq)s)
ON CONFLICT (sink, dataset) DO UPDATE
   SET epoch = excluded.epoch, seq = excluded.seq, at = clock_timestamp()
