-- What this run knows of a list, for the next one.
INSERT INTO gib.list AS l (
    name, run, users, rejected, duplicates, xml_bytes, sha256, seed, fingerprints, identifiers
) VALUES (
    %(name)s, %(run)s, %(users)s, %(rejected)s, %(duplicates)s, %(xml_bytes)s, %(sha256)s, %(seed)s,
    %(fingerprints)s, %(identifiers)s
)
ON CONFLICT (name) DO UPDATE
   SET run = excluded.run, users = excluded.users, rejected = excluded.rejected,
       duplicates = excluded.duplicates, xml_bytes = excluded.xml_bytes,
       sha256 = excluded.sha256, seed = excluded.seed,
       fingerprints = excluded.fingerprints, identifiers = excluded.identifiers
