-- Past states are a view: for reading only.
SELECT core.make_read_only('feed.past_state');
