-- Takes over where the scan before was told that there is no parcel, and what that one had taken
-- over itself.
INSERT INTO tkgm.known (scan, question, told_at, fresh)
SELECT %(scan)s, question, max(told_at), false
  FROM (SELECT question, told_at FROM tkgm.told WHERE scan = %(before)s AND key IS NULL
        UNION ALL
        SELECT question, told_at FROM tkgm.known WHERE scan = %(before)s AND key IS NULL) AS empty
 GROUP BY question
