-- A file of a batch that is published.
INSERT INTO feed.archive (batch, dataset, name, format, size, sha256, epoch, seq, version,
                          records, digest, committed_at, seat)
VALUES (%(batch)s, %(dataset)s, %(name)s, %(format)s, %(size)s, %(sha256)s, %(epoch)s, %(seq)s,
        %(version)s, %(records)s, %(digest)s, %(committed_at)s, %(seat)s)
