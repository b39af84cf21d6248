-- How many parcels match.
SELECT count(*)
  FROM core.parcels AS p
  LEFT JOIN tkgm.parcel_told AS t USING (key)
 WHERE {matches}
