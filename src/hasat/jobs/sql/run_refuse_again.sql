-- One more due time skipped behind the same run: counted, so that a long run floods nothing.
UPDATE jobs.run
   SET detail = detail || jsonb_build_object('times', (detail ->> 'times')::integer + 1),
       finished_at = clock_timestamp()
 WHERE id = (SELECT id
               FROM jobs.run
              WHERE job = %(job)s
                AND id > %(behind)s
                AND trigger = 'schedule'
                AND outcome = 'skipped'
                AND (detail ->> 'behind')::bigint = %(behind)s
              ORDER BY id DESC
              LIMIT 1)
RETURNING id;
