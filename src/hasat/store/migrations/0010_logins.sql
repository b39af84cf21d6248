-- A login is a short-lived key that was made from another one, and ends with it.
ALTER TABLE serve.api_key ADD COLUMN made_from text REFERENCES serve.api_key ON DELETE CASCADE;
COMMENT ON COLUMN serve.api_key.made_from IS 'The key by which somebody logged in; null for keys of operators.';
