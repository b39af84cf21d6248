-- After a restore, cursors and times of the life before must not be taken for this one's.
DO $$
BEGIN
    IF to_regclass('feed.head') IS NOT NULL THEN
        UPDATE feed.head
           SET epoch = gen_random_uuid(),
               floor = seq,
               floor_at = greatest(clock_timestamp(), committed_at)
         WHERE committed_at IS NOT NULL;
    END IF;
END
$$;
