-- The seasons of some leagues as /leagues lists them; a date that is none is left out.
SELECT league_id, year, first_day, last_day, coverage
  FROM football.seasons_of(%(leagues)s)
