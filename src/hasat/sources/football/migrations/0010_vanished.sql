-- Which matches left the mirror with a response: their details left with them, so a rebuild drops what
-- older responses say of those.
ALTER TABLE raw.api_responses ADD COLUMN vanished bigint[];
COMMENT ON COLUMN raw.api_responses.vanished IS 'the matches that this response removed from CORE; null where none';
