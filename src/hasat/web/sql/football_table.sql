-- The table of a league's season.
SELECT group_name AS "group", rank, body #>> '{team,name}' AS team,
       core.whole(body #> '{all,played}') AS played, core.whole(body #> '{all,win}') AS won,
       core.whole(body #> '{all,draw}') AS drawn, core.whole(body #> '{all,lose}') AS lost,
       core.whole(body #> '{all,goals,for}') AS scored,
       core.whole(body #> '{all,goals,against}') AS conceded, points, body ->> 'form' AS form
  FROM core.standings
 WHERE league_id = %(league)s AND season = %(season)s
 ORDER BY group_name, rank
 LIMIT 200
