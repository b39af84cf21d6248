-- Some of what a run would change, chosen by their digests: from everywhere, and the same each time.
SELECT key, coalesce(body, before)
  FROM {changes} AS m
 WHERE kind = %(kind)s AND ({among})
 ORDER BY coalesce(digest, digest_before)
 LIMIT %(most)s
