-- name: delivery_counts
-- Pending deliveries and dead letters of each endpoint; not those of watch lists, which have a page.
SELECT name, coalesce(w.waiting, 0), coalesce(d.dead, 0), w.oldest
  FROM (SELECT unnest(%(names)s::text[]) AS name
        UNION
        SELECT endpoint FROM deliver.delivery WHERE state = 'waiting'
        UNION
        SELECT endpoint FROM deliver.delivery WHERE state = 'dead') AS n
  LEFT JOIN (SELECT endpoint, count(*) AS waiting,
                    extract(epoch FROM clock_timestamp() - min(waiting_since))::float8 AS oldest
               FROM deliver.delivery WHERE state = 'waiting' GROUP BY endpoint) AS w ON w.endpoint = name
  LEFT JOIN (SELECT endpoint, count(*) AS dead
               FROM deliver.delivery WHERE state = 'dead' GROUP BY endpoint) AS d ON d.endpoint = name
 WHERE NOT starts_with(name, 'watchlist:')
 ORDER BY name

-- name: consumers
-- Position and lag of each stream and API key by dataset; the whole dataset after a new epoch.
SELECT CASE WHEN k.id IS NULL THEN 'stream' ELSE 'key' END AS kind, coalesce(k.name, p.sink) AS name,
       p.dataset, p.seq, h.seq AS head,
       CASE WHEN p.epoch = h.epoch THEN greatest(h.seq - p.seq, 0) ELSE h.seq END AS lag, p.at
  FROM deliver.position AS p
  JOIN feed.head AS h ON h.dataset = p.dataset
  LEFT JOIN serve.api_key AS k ON p.sink = 'key:' || k.id
 WHERE k.revoked_at IS NULL
 ORDER BY kind, name, p.sink, p.dataset

-- name: heads
-- Head and stored totals of each dataset.
SELECT dataset, source, records, seq, committed_at FROM feed.head ORDER BY source, dataset

-- name: newest_changes
-- The head of a dataset and its newest changes, newest first, from one snapshot.
SELECT h.seq AS head, h.floor, h.records, h.committed_at, c.*
  FROM feed.head AS h
  LEFT JOIN LATERAL (
       SELECT seq, kind, key, body, before, changed_at, version
         FROM feed.change
        WHERE dataset = h.dataset AND (%(before)s::bigint IS NULL OR seq < %(before)s)
        ORDER BY seq DESC
        LIMIT %(limit)s
       ) AS c ON true
 WHERE h.dataset = %(dataset)s
 ORDER BY c.seq DESC

-- name: live_state
-- A text that differs whenever data of the pages has changed. Reads indexes and small tables only.
SELECT concat_ws(' ',
    (SELECT max(id) FROM jobs.run),
    (SELECT max(finished_at) FROM jobs.run WHERE state = 'finished'),
    (SELECT md5(string_agg(concat(id, state, progress, requests), ' ' ORDER BY id))
       FROM jobs.run WHERE state <> 'finished'),
    (SELECT md5(string_agg(concat(dataset, epoch, seq, version), ' ' ORDER BY dataset)) FROM feed.head),
    (SELECT md5(string_agg(concat(upstream, spent, foreign_use, exhausted_at), ' ' ORDER BY upstream))
       FROM budget.day WHERE day >= current_date - 1),
    (SELECT max(id) FROM deliver.delivery),
    (SELECT md5(string_agg(concat(id, attempts), ' ' ORDER BY id))
       FROM deliver.delivery WHERE state = 'waiting'),
    (SELECT count(*) FROM deliver.delivery WHERE state = 'dead')
)

-- name: run_costs
-- The requests of a run by outcome; the time span limits the part of the ledger that is read.
SELECT upstream, lane, outcome, count(*) AS requests, sum(cost)::bigint AS spent,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY latency_ms) AS median_ms
  FROM budget.request
 WHERE run = %(run)s
   AND at BETWEEN %(since)s - interval '1 minute' AND %(until)s + interval '1 minute'
 GROUP BY upstream, lane, outcome
 ORDER BY spent DESC, outcome

-- name: usage_by_hour
-- The requests of a quota day by hour.
SELECT hour, sum(units)::bigint FROM budget.usage
 WHERE upstream = %(upstream)s AND day = %(day)s
 GROUP BY hour

-- name: timeline
-- Time spans of the runs since a time, and of unfinished runs. Runs of a job with the same outcome and a gap
-- below the minimum are one span; spans are drawn in this order.
SELECT max(id) AS run, count(*)::int AS runs, job, status, min(started_at) AS started_at,
       nullif(max(coalesce(finished_at, 'infinity')), 'infinity') AS finished_at
  FROM (SELECT *, sum(starts_span) OVER (PARTITION BY job, status ORDER BY started_at, id) AS span
          FROM (SELECT *, ((started_at - lag(finished_at) OVER (PARTITION BY job, status ORDER BY started_at, id)
                            < %(gap)s) IS NOT TRUE)::int AS starts_span
                  FROM (SELECT id, job, outcome AS status, started_at, finished_at FROM jobs.run
                         WHERE state = 'finished' AND finished_at > %(since)s
                        UNION ALL
                        SELECT id, job, state, started_at, NULL FROM jobs.run
                         WHERE state <> 'finished') AS ran
                 WHERE started_at IS NOT NULL AND (%(jobs)s::text[] IS NULL OR job = ANY (%(jobs)s))) AS r) AS r
 GROUP BY job, status, span
 ORDER BY runs DESC, run

-- name: first_version
-- When the oldest stored version was committed.
SELECT min(first.committed_at)
  FROM feed.head AS h
 CROSS JOIN LATERAL (SELECT committed_at FROM feed.version_dataset
                      WHERE dataset = h.dataset ORDER BY committed_at LIMIT 1) AS first

-- name: trend
-- The state of each dataset at some times: its newest version by then. One index entry for each is read.
SELECT h.source, h.dataset, edge.at AS edge, v.epoch, v.seq, v.records, first.seq_before AS first_seq
  FROM feed.head AS h
 CROSS JOIN LATERAL (SELECT seq_before FROM feed.version_dataset
                      WHERE dataset = h.dataset ORDER BY committed_at LIMIT 1) AS first
 CROSS JOIN unnest(%(edges)s::timestamptz[]) AS edge (at)
 CROSS JOIN LATERAL (SELECT epoch, seq, records FROM feed.version_dataset
                      WHERE dataset = h.dataset AND committed_at <= edge.at
                      ORDER BY committed_at DESC LIMIT 1) AS v

-- name: failures
-- The jobs that failed since a time, with the newest failed run of each and whether its last run failed too.
SELECT r.job, count(*)::int AS runs, max(r.id) AS run, max(r.finished_at) AS at,
       (SELECT outcome IN ('failed', 'set_aside') FROM jobs.run AS last
         WHERE last.job = r.job AND last.state = 'finished' ORDER BY last.id DESC LIMIT 1) AS still
  FROM jobs.run AS r
 WHERE r.state = 'finished' AND r.finished_at > %(since)s AND r.outcome IN ('failed', 'set_aside')
 GROUP BY r.job
 ORDER BY still DESC, at DESC

-- name: dead_letters
-- The number of dead letters of webhooks.
SELECT count(*)::int FROM deliver.delivery WHERE state = 'dead'
