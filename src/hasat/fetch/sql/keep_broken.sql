-- Keep an answer that could not be read.
INSERT INTO raw.set_aside (source, run, origin, reason, content)
VALUES (%(source)s, %(run)s, %(origin)s, %(reason)s, %(content)s)
