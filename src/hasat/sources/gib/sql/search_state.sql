-- What of the search is there: rows that are not complete, pg_trgm's operators, indexes by them, and
-- anything to search.
SELECT ARRAY(SELECT name FROM unnest(%(datasets)s::text[]) AS name
              WHERE NOT EXISTS (SELECT FROM gib.search_ready WHERE dataset = name)) AS unready,
       operators.nspname, operators.opcname,
       ARRAY(SELECT name FROM unnest(%(datasets)s::text[]) AS name
              WHERE to_regclass('gib.search_' || name || '_line') IS NOT NULL) AS indexed,
       EXISTS (SELECT FROM feed.head WHERE dataset = ANY (%(datasets)s) AND records > 0) AS filled
  FROM (SELECT) AS always
  LEFT JOIN (
       SELECT n.nspname, c.opcname
         FROM pg_opclass AS c
         JOIN pg_am AS a ON a.oid = c.opcmethod AND a.amname = 'gin'
         JOIN pg_namespace AS n ON n.oid = c.opcnamespace
        WHERE c.opcname = 'gin_trgm_ops'
        LIMIT 1
       ) AS operators ON true
