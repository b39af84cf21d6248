-- The same for a list whose records are the same as before.
UPDATE gib.list
   SET run = %(run)s, users = %(users)s, rejected = %(rejected)s, xml_bytes = %(xml_bytes)s,
       usual_length = %(usual_length)s, agreed = %(agreed)s, sha256 = %(sha256)s
 WHERE name = %(name)s
