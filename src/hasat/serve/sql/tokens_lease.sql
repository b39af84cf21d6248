-- Take tokens from a shared bucket.
SELECT granted, remaining FROM serve.lease_tokens(%(name)s, %(per_minute)s, %(wanted)s);
