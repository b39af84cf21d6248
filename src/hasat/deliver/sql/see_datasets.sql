-- Every dataset that was filled, and whoever announces its versions waits for others here.
INSERT INTO deliver.seen_version (dataset, version)
SELECT dataset, version FROM feed.head WHERE version IS NOT NULL
ON CONFLICT DO NOTHING
