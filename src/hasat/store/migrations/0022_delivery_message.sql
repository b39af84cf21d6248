-- The template and the parameters of a delivery's last error, as for the messages of runs.
ALTER TABLE deliver.delivery ADD COLUMN last_error_data jsonb;
