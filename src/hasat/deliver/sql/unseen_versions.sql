-- Whether a dataset has a version that was not looked at; asked every second, so nothing is locked.
SELECT EXISTS (
    SELECT FROM feed.head AS h
      LEFT JOIN deliver.seen_version AS s ON s.dataset = h.dataset
     WHERE h.version IS NOT NULL AND h.version IS DISTINCT FROM s.version
)
