-- When an endpoint was last asked, by league, season and team; what it refused lately counts as asked.
SELECT league_id, season, team_id, max(at)
  FROM (SELECT league_id, season, team_id, asked_at AS at
          FROM football.season_asked
         WHERE endpoint = %(endpoint)s
         UNION ALL
        SELECT league_id, season, team_id, refused_at
          FROM football.refusal
         WHERE endpoint = %(endpoint)s AND refused_at > %(refused_since)s) AS noted
 GROUP BY league_id, season, team_id
