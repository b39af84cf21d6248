-- Archives past their time are no longer known, and their files are to be removed.
-- The newest batch stays whatever its age, and so does the newest that can be gone on from.
WITH spared AS (
    SELECT max(a.id) AS id FROM feed.archive AS a WHERE a.dataset = %(dataset)s
    UNION ALL
    SELECT max(a.id)
      FROM feed.archive AS a
      JOIN feed.head AS h ON h.dataset = a.dataset AND h.epoch = a.epoch AND h.floor <= a.seq
     WHERE a.dataset = %(dataset)s
), expired AS (
    DELETE FROM feed.archive AS a
     WHERE a.dataset = %(dataset)s
       AND a.created_at < clock_timestamp() - make_interval(days => %(retention_days)s)
       AND a.batch NOT IN (SELECT b.batch FROM feed.archive AS b JOIN spared USING (id))
    RETURNING a.batch, a.name, a.seat
)
INSERT INTO feed.archive_leftover (batch, dataset, names, seat)
SELECT batch, %(dataset)s, array_agg(name), max(seat) FROM expired GROUP BY batch
ON CONFLICT (batch) DO UPDATE SET names = archive_leftover.names || excluded.names
