SELECT id, at, actor, actor_kind, address, action, object, reason, outcome, detail
  FROM jobs.audit
 WHERE (%(actor)s::text IS NULL OR actor = %(actor)s)
   AND (%(action)s::text IS NULL OR action = %(action)s OR starts_with(action, %(action)s || '.'))
   AND (%(before)s::bigint IS NULL OR id < %(before)s)
 ORDER BY id DESC
 LIMIT %(limit)s
