-- What the version did to one dataset, also when that is nothing.
INSERT INTO feed.version_dataset
       (version, dataset, epoch, committed_at, seq_before, seq, added, modified, removed, records, digest)
VALUES (%(version)s, %(dataset)s, %(epoch)s, %(at)s, %(seq_before)s, %(seq)s,
        %(added)s, %(modified)s, %(removed)s, %(records)s, %(digest)s)
