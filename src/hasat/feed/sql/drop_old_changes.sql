-- Forget changes below the floor; the floor itself moved in the same transaction.
DELETE FROM feed.change WHERE dataset = %(dataset)s AND seq <= %(floor)s
