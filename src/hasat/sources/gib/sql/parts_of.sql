-- The kept parts of some taxpayers.
SELECT identifier, parts
  FROM gib.taxpayer
 WHERE identifier = ANY (%(identifiers)s) OR (%(odd)s AND identifier !~ '^[0-9]{1,18}$')
