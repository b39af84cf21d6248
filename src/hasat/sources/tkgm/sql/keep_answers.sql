-- What questions were told just now.
INSERT INTO tkgm.answer AS known (question, feature, told_at)
SELECT question, feature, clock_timestamp()
  FROM unnest(%(questions)s::text[], %(features)s::jsonb[]) AS told (question, feature)
 ORDER BY question
ON CONFLICT (question) DO UPDATE SET feature = EXCLUDED.feature, told_at = EXCLUDED.told_at
RETURNING question, told_at
