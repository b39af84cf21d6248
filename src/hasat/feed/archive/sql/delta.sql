-- Some of the changes between two numbers, each as a line of JSON.
SELECT c.seq,
       '{"seq":' || c.seq || ',"changeType":"' || (ARRAY['added', 'modified', 'removed'])[c.kind]
       || '","key":' || to_json(c.key)::text || ',"body":' || coalesce(c.body::text, 'null') || '}'
  FROM feed.change AS c
 WHERE c.dataset = %(dataset)s AND c.seq > %(after)s AND c.seq <= %(last)s
 ORDER BY c.seq
 LIMIT %(limit)s
