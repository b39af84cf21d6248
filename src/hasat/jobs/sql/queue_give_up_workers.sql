-- Workers that have fallen silent, except those that spoke up this very moment.
DELETE FROM procrastinate_workers AS w
 USING unnest(%(ids)s::bigint[], %(beats)s::timestamptz[]) AS silent (id, beat)
 WHERE w.id = silent.id AND w.last_heartbeat = silent.beat
RETURNING w.id;
