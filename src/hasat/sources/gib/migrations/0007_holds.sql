-- The platform stores holds and their input for every source; the newest waiting one stays open.
INSERT INTO feed.hold (id, job, source, datasets, scopes, params, state, at, runs, preview,
                       decided_at, announced)
SELECT h.run, 'gib_sync', 'gib', ARRAY['einvoice', 'edespatch'],
       '{"einvoice": {"whole": true}, "edespatch": {"whole": true}}',
       coalesce(r.params, '{}') - 'approve',
       CASE WHEN h.state = 'waiting' AND h.run < max(h.run) FILTER (WHERE h.state = 'waiting') OVER ()
            THEN 'superseded' ELSE h.state END,
       h.at, ARRAY[h.run], h.preview, h.decided_at, true
  FROM gib.held AS h
  LEFT JOIN jobs.run AS r ON r.id = h.run;
INSERT INTO feed.held_input (run, name, path, sha256, size, machine)
SELECT run, name, path, sha256, size, machine FROM gib.held_input;
DROP TABLE gib.held;
DROP TABLE gib.held_input;
