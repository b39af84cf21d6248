-- Scans, newest first, with what each was told so far.
SELECT s.id, s.began_at, s.finished_at, s.result,
       t.questions, t.parcels, t.last_answer_at
  FROM tkgm.scan AS s
 CROSS JOIN LATERAL (
        SELECT count(*) AS questions, count(DISTINCT key) AS parcels, max(told_at) AS last_answer_at
          FROM tkgm.told WHERE scan = s.id
       ) AS t
 ORDER BY s.id DESC
 LIMIT %(limit)s
