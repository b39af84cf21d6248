-- The parcels that a scan was told of, those too that are not in the mirror yet; the latest first.
SELECT key, feature ->> 'geometry'
  FROM (SELECT DISTINCT ON (key) key, feature, told_at
          FROM tkgm.told
         WHERE scan = %(scan)s AND key IS NOT NULL AND jsonb_typeof(feature -> 'geometry') = 'object'
         ORDER BY key, told_at) AS found
 ORDER BY told_at DESC, key
 LIMIT %(limit)s
