INSERT INTO {state} (dataset, epoch, cursor, seq, digest, records, verified_at)
VALUES (%(dataset)s, %(epoch)s, %(cursor)s, %(seq)s, %(digest)s, %(records)s, %(verified_at)s)
ON CONFLICT (dataset) DO UPDATE
   SET epoch = excluded.epoch, cursor = excluded.cursor, seq = excluded.seq,
       digest = excluded.digest, records = excluded.records, verified_at = excluded.verified_at
