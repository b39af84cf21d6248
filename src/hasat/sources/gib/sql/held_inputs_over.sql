-- Stored lists of runs that neither work nor wait for a decision, as far as this machine has them.
SELECT i.run, i.name, i.path, i.sha256, i.size, i.machine
  FROM gib.held_input AS i
 WHERE (i.machine IS NULL OR i.machine = %(machine)s)
   AND NOT EXISTS (SELECT FROM gib.held AS h WHERE h.run = i.run AND h.state = 'waiting')
   AND NOT EXISTS (SELECT FROM jobs.run AS r WHERE r.id = i.run AND r.state <> 'finished')
   AND NOT EXISTS (SELECT FROM jobs.run AS r
                    WHERE r.job = 'gib_sync' AND r.state <> 'finished'
                      AND r.params ->> 'approve' = i.run::text)
