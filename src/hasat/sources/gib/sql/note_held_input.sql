-- Record where a list of a held run is going to be stored; a repeated attempt replaces it.
INSERT INTO gib.held_input (run, name, path, sha256, size, machine)
VALUES (%(run)s, %(name)s, %(path)s, %(sha256)s, %(size)s, %(machine)s)
ON CONFLICT (run, name) DO UPDATE
   SET path = excluded.path, sha256 = excluded.sha256, size = excluded.size,
       machine = excluded.machine
