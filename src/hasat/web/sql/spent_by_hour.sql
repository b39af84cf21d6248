-- What a quota day's hours cost.
SELECT hour, sum(units)::bigint FROM budget.usage
 WHERE upstream = %(upstream)s AND day = %(day)s
 GROUP BY hour
