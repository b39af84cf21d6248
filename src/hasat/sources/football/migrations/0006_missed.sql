-- When a match was last asked for by its id in vain: that is no word of the API about it, and no reason
-- to ask for it with every run.
ALTER TABLE football.fixture_told ADD COLUMN missed_at timestamptz;
