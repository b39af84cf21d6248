-- Who spent what today, most first.
SELECT job, lane, sum(units)::bigint AS spent, sum(grants)::bigint AS grants,
    sum(refusals)::bigint AS refusals
FROM budget.usage
WHERE upstream = %(upstream)s AND day = %(day)s
GROUP BY job, lane
ORDER BY spent DESC, job, lane;
