-- A record that could not be read.
INSERT INTO raw.set_aside (source, run, origin, key, reason, content)
VALUES (%(source)s, %(run)s, %(origin)s, %(key)s, %(reason)s, %(content)s)
