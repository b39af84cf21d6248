SELECT epoch, cursor, seq, digest, records, verified_at FROM {state} WHERE dataset = %(dataset)s
