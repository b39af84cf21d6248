-- Give back an endpoint that was not asked after all.
UPDATE fetching.endpoint
SET holder = NULL, held_until = NULL, next_at = NULL, points = greatest(points - %(points)s, 0)
WHERE upstream = %(upstream)s AND holder = %(holder)s
