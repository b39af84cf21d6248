-- What waits for each endpoint and what it will not get; what was delivered is not counted.
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
 ORDER BY name
