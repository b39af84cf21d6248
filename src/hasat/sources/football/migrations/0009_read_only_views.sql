-- MART and the original's table of progress are views: for reading only.
SELECT core.make_read_only('core.team_statistics_progress');
SELECT core.make_read_only('mart.daily_fixtures_dashboard');
SELECT core.make_read_only('mart.live_score_panel');
SELECT core.make_read_only('mart.daily_fixture_counts');
SELECT core.make_read_only('mart.season_coverage');
SELECT core.make_read_only('mart.coverage_status');
