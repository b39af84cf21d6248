-- Whether a match's last change is news: it has ended lately, or is told otherwise than before. What
-- follows from it (tables, scorers, statistics) is published hours later; of old matches it is there.
CREATE FUNCTION football.is_news(changed_at timestamptz, first_seen_at timestamptz, date timestamptz)
RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN changed_at > first_seen_at OR date > changed_at - interval '2 days';

-- Nothing ever read it.
ALTER TABLE football.fixture_told DROP COLUMN details_times;
