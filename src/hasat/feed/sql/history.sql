-- Everything still known of one record, oldest first.
SELECT seq, kind, key, body, before, changed_at, version
  FROM feed.change
 WHERE dataset = %(dataset)s AND key = %(key)s
 ORDER BY seq
