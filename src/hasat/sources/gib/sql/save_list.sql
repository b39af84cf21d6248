-- What this run knows of a list, for the next one.
INSERT INTO gib.list AS l (
    name, run, users, rejected, duplicates, xml_bytes, usual_length, agreed, sha256, seed,
    fingerprints, identifiers
) VALUES (
    %(name)s, %(run)s, %(users)s, %(rejected)s, %(duplicates)s, %(xml_bytes)s, %(usual_length)s,
    %(agreed)s, %(sha256)s, %(seed)s, %(fingerprints)s, %(identifiers)s
)
ON CONFLICT (name) DO UPDATE
   SET run = excluded.run, users = excluded.users, rejected = excluded.rejected,
       duplicates = excluded.duplicates, xml_bytes = excluded.xml_bytes,
       usual_length = excluded.usual_length, agreed = excluded.agreed,
       sha256 = excluded.sha256, seed = excluded.seed,
       fingerprints = excluded.fingerprints, identifiers = excluded.identifiers
