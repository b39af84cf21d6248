-- What is computed from matches and requests are views: for reading only.
SELECT core.make_read_only('mart.collection_status');
SELECT core.make_read_only('mart.request_rate');
SELECT core.make_read_only('mart.results');
SELECT core.make_read_only('mart.team_seasons');
SELECT core.make_read_only('mart.player_seasons');
SELECT core.make_read_only('mart.corrections');
