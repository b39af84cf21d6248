-- One line that differs whenever something that pages show has changed. Only indexes and small tables.
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
