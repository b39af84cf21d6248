-- One page of a search and how many it found in all, as one snapshot saw them.
WITH wanted AS {once} (
    SELECT identifier, line
      FROM {rows} AS s
     WHERE line LIKE %(like)s
       AND (%(alias)s::jsonb IS NULL OR aliases @> %(alias)s::jsonb)
       AND (%(personal)s OR length(identifier) <> 11)
), page AS (
    SELECT * FROM wanted ORDER BY line LIMIT %(size)s OFFSET %(skip)s
)
SELECT (SELECT count(*) FROM wanted) AS total, m.body
  FROM (SELECT) AS always
  LEFT JOIN (page JOIN {table} AS m ON m.key = page.identifier) ON true
 ORDER BY page.line
