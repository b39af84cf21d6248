-- Answers that are too old to be given again.
DELETE FROM tkgm.answer
 WHERE told_at < clock_timestamp() - CASE
       WHEN feature IS NULL THEN %(not_found_age)s::interval
       ELSE %(parcel_age)s::interval
   END
