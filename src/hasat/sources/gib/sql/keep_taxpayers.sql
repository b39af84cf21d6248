-- Keep the parts of some taxpayers as the lists say them now.
INSERT INTO gib.taxpayer AS t (identifier, parts)
SELECT * FROM unnest(%(identifiers)s::text[], %(parts)s::text[])
ON CONFLICT (identifier) DO UPDATE SET parts = excluded.parts
