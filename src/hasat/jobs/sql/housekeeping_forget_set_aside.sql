-- Pieces of answers that could not be read, when the runs that met them are forgotten too. What is
-- still published like that is set aside anew each time it is read.
DELETE FROM raw.set_aside WHERE at < clock_timestamp() - make_interval(days => %(days)s);
