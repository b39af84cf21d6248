-- Say of a run that it is being stopped; its end says how that went.
UPDATE jobs.run SET message = %(message)s WHERE id = %(run)s AND state <> 'finished';
