-- Take a lease that is free, over or one's own already.
INSERT INTO deliver.lease AS l (name, holder, until)
VALUES (%(name)s, %(holder)s, clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, until = excluded.until
 WHERE l.holder = excluded.holder OR l.until < clock_timestamp()
