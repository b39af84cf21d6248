-- The latest scans: where, how far, and what they found.
SELECT s.id, s.area, s.method, s.began_at, s.finished_at,
       coalesce((s.result ->> 'asked')::bigint, told.asked) AS asked,
       coalesce((s.result ->> 'found')::bigint, told.found) AS found
  FROM (SELECT * FROM tkgm.scan ORDER BY began_at DESC, id DESC LIMIT %(limit)s) AS s
 CROSS JOIN LATERAL (SELECT count(*) AS asked, count(DISTINCT t.key) AS found
                       FROM tkgm.told AS t
                      WHERE t.scan = s.id AND s.finished_at IS NULL) AS told
 ORDER BY s.began_at DESC, s.id DESC
