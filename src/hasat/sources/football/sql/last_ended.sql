-- When the newest word about a finished match of each season came: of one that is news, and of others.
-- A match that was awarded counts in a table as well.
SELECT league_id, season,
       max(changed_at) FILTER (WHERE football.is_news(changed_at, first_seen_at, date)),
       max(changed_at) FILTER (WHERE NOT football.is_news(changed_at, first_seen_at, date))
  FROM core.fixtures
 WHERE status_short = ANY (%(finished)s) OR football.state_of(status_short) = 'not_played'
 GROUP BY league_id, season
