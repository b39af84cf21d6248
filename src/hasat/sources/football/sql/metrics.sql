-- Figures of the mirror: name, label, value.
SELECT 'fixtures', football.state_of(status_short), count(*)::double precision FROM core.fixtures GROUP BY 2
UNION ALL
SELECT 'inferred_fixtures', '', count(*) FROM core.fixture_inferences
UNION ALL
SELECT 'set_aside', '', count(*) FROM raw.set_aside WHERE source = 'football'
UNION ALL
SELECT 'last_told_timestamp_seconds', '', extract(epoch FROM max(told_at))::double precision FROM football.fixture_told
