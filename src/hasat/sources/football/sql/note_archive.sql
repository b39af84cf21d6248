-- A month lies in a file from now on.
INSERT INTO raw.api_archives (path, month, answers, last_order, digest, size, sha256)
VALUES (%(path)s, %(month)s, %(answers)s, %(last_order)s, %(digest)s, %(size)s, %(sha256)s)
    ON CONFLICT (path) DO NOTHING
