-- name: add_channel
-- A channel of a list; its endpoint has the name of the list and its own number.
WITH new AS (SELECT nextval(pg_get_serial_sequence('deliver.watchlist_channel', 'id')) AS id)
INSERT INTO deliver.watchlist_channel (id, watchlist, type, settings, endpoint)
OVERRIDING SYSTEM VALUE
SELECT new.id, w.id, %(type)s, %(settings)s, format('watchlist:%%s:%%s', w.name, new.id)
  FROM new, deliver.watchlist AS w
 WHERE w.id = %(watchlist)s

-- name: add_keys
-- Add keys to a list; those that it has already stay as they are.
INSERT INTO deliver.watchlist_key (watchlist, key, since)
SELECT %(watchlist)s, key, %(since)s
  FROM unnest(%(keys)s::text[]) AS given (key)
ON CONFLICT DO NOTHING

-- name: channels
-- The channels of some lists.
SELECT id, watchlist, type, settings, endpoint
  FROM deliver.watchlist_channel
 WHERE watchlist = ANY (%(watchlists)s)
 ORDER BY watchlist, id

-- name: collect_changes
-- Collect the next changes of some locked lists of one dataset, and move their positions past them.
-- The window bounds the work of one transaction.
WITH behind AS (
    SELECT id, seq FROM deliver.watchlist WHERE id = ANY (%(lists)s)
), span AS (
    SELECT l.low, least(h.seq, l.low + %(window)s) AS high
      FROM feed.head AS h, (SELECT min(seq) AS low FROM behind) AS l
     WHERE h.dataset = %(dataset)s
), collected AS (
    INSERT INTO deliver.watchlist_change (watchlist, seq, kind, key, body, before, changed_at)
    SELECT b.id, c.seq, c.kind, c.key, c.body, c.before, c.changed_at
      FROM span
      JOIN feed.change AS c
        ON c.dataset = %(dataset)s AND c.seq > span.low AND c.seq <= span.high
      {matches}
     WHERE c.seq > b.seq
       AND EXISTS (SELECT FROM deliver.watchlist_channel AS ch WHERE ch.watchlist = b.id)
     ORDER BY b.id, c.seq
)
UPDATE deliver.watchlist AS w
   SET seq = span.high
  FROM span, behind AS b
 WHERE w.id = b.id AND b.seq < span.high

-- name: compose_messages
-- Turn the collected changes of the due lists into messages, with a delivery for each channel.
WITH due AS (
    SELECT id, name, owner, dataset, mode
      FROM deliver.watchlist
     WHERE id = ANY (%(lists)s) AND (digest_at IS NULL OR digest_at <= clock_timestamp())
), taken AS (
    DELETE FROM deliver.watchlist_change
     WHERE id IN (SELECT c.id
                    FROM due
                    JOIN deliver.watchlist_change AS c ON c.watchlist = due.id
                   ORDER BY c.watchlist, c.id
                   LIMIT %(window)s)
    RETURNING *
), numbered AS (
    SELECT t.*, due.name, due.owner, due.dataset, t.kind = 0 AS is_gap,
           count(*) FILTER (WHERE t.kind = 0) OVER w AS gaps,
           (row_number() OVER w - 1) / CASE due.mode WHEN 'immediate' THEN %(most)s
                                                    ELSE %(max_in_digest)s END AS part,
           sum(octet_length(concat(t.body::text, t.before::text))) OVER w / %(bytes)s AS piece
      FROM taken AS t
      JOIN due ON due.id = t.watchlist
    WINDOW w AS (PARTITION BY t.watchlist ORDER BY t.id)
), messages AS (
    SELECT watchlist, name, owner, dataset, is_gap, min(id) AS first, count(*) AS changes,
           json_agg(json_build_object('seq', seq, 'kind', kind, 'key', key, 'body', body,
                                      'before', before, 'changedAt', changed_at)
                    ORDER BY id) AS list
      FROM numbered
     GROUP BY watchlist, name, owner, dataset, is_gap, gaps, part, piece
), events AS (
    INSERT INTO deliver.event (kind, severity, summary, payload, owner, watchlist, handed_out)
    SELECT CASE WHEN is_gap THEN 'watchlist.gap' ELSE 'watchlist.changed' END,
           CASE WHEN is_gap THEN 'Warning' ELSE 'Info' END,
           CASE WHEN is_gap THEN format('%%s: bazı değişiklikler iletilemedi (%%s).', name, dataset)
                ELSE format('%%s: %%s değişiklik (%%s).', name, changes, dataset) END,
           json_build_object('watchlist', name, 'dataset', dataset, 'changes', list),
           owner, watchlist, true
      FROM messages
     ORDER BY first
    RETURNING id, watchlist
)
INSERT INTO deliver.delivery (event, endpoint, channel)
SELECT events.id, ch.endpoint, ch.id
  FROM events
  JOIN deliver.watchlist_channel AS ch ON ch.watchlist = events.watchlist
 ORDER BY events.id, ch.id

-- name: due_channels
-- Channels whose oldest waiting delivery is due.
SELECT ch.id, ch.type, ch.endpoint
  FROM deliver.watchlist AS w
  JOIN deliver.watchlist_channel AS ch ON ch.watchlist = w.id
 CROSS JOIN LATERAL (
       SELECT next_at
         FROM deliver.delivery
        WHERE endpoint = ch.endpoint AND state = 'waiting'
        ORDER BY id
        LIMIT 1) AS d
 WHERE d.next_at <= clock_timestamp() AND deliver.may_watch(w.owner, w.dataset)
 ORDER BY d.next_at
 LIMIT %(limit)s

-- name: give_up
-- Turn the waiting deliveries of channels that end into dead letters.
UPDATE deliver.delivery
   SET state = 'dead', settled_at = clock_timestamp(), last_error = %(error)s, last_error_data = NULL
 WHERE channel = ANY (%(channels)s) AND state = 'waiting'

-- name: is_due
-- Return whether a list has something to collect or to send; runs every second, so it locks nothing.
SELECT EXISTS (SELECT FROM deliver.watchlist AS w JOIN feed.head AS h USING (dataset) WHERE {due})

-- name: list_keys
-- The keys of a list.
SELECT key FROM deliver.watchlist_key WHERE watchlist = %(watchlist)s ORDER BY key

-- name: lists
-- Lists of one owner or of all, with what each has; by name.
SELECT w.id, w.name, w.owner, k.name AS owner_name, w.dataset, w.filter, w.mode, w.digest_at, w.gap,
       w.created_at, w.updated_at, greatest(0, h.seq - w.seq) AS lag,
       NOT deliver.may_watch(w.owner, w.dataset) AS paused,
       (SELECT count(*) FROM deliver.watchlist_key AS one WHERE one.watchlist = w.id) AS key_count,
       (SELECT count(*) FROM deliver.watchlist_change AS c WHERE c.watchlist = w.id) AS collected,
       (SELECT count(*) FROM deliver.watchlist_channel AS ch
          JOIN deliver.delivery AS d ON d.endpoint = ch.endpoint AND d.state = 'waiting'
         WHERE ch.watchlist = w.id) AS waiting
  FROM deliver.watchlist AS w
  LEFT JOIN feed.head AS h ON h.dataset = w.dataset AND h.epoch = w.epoch
  LEFT JOIN serve.api_key AS k ON w.owner = 'key:' || k.id
 WHERE (%(owner)s::text IS NULL OR w.owner = %(owner)s)
   AND (%(name)s::text IS NULL OR w.name = %(name)s)
 ORDER BY w.name, w.owner

-- name: lock_due
-- Lock the lists that have something to collect or to send; those that are being changed can wait.
SELECT w.id, w.dataset, w.filter
  FROM deliver.watchlist AS w
  JOIN feed.head AS h USING (dataset)
 WHERE {due}
 ORDER BY w.id
 LIMIT 1000
   FOR UPDATE OF w SKIP LOCKED

-- name: due
-- The condition of both: behind the head, or with collected changes whose time has come.
deliver.may_watch(w.owner, w.dataset)
   AND ((w.epoch, w.seq) IS DISTINCT FROM (h.epoch, h.seq)
        OR w.digest_at <= clock_timestamp()
        OR (w.digest_at IS NULL
            AND EXISTS (SELECT FROM deliver.watchlist_change AS c WHERE c.watchlist = w.id)))

-- name: next_digests
-- Set the time of the next digest: the full hour, or the morning of the next day.
UPDATE deliver.watchlist AS w
   SET digest_at = deliver.next_digest(w.mode, %(zone)s)
 WHERE w.id = ANY (%(lists)s)
   AND w.digest_at <= clock_timestamp()
   AND NOT EXISTS (SELECT FROM deliver.watchlist_change AS c WHERE c.watchlist = w.id)

-- name: note_gaps
-- A list whose position the feed no longer reaches continues at the floor, and says so.
WITH lost AS (
    SELECT w.id, h.epoch, h.floor,
           jsonb_build_object('at', clock_timestamp(), 'after', w.seq, 'floor', h.floor, 'reason',
               CASE WHEN w.epoch = h.epoch AND w.seq < h.floor THEN 'expired' ELSE 'rebuilt' END)
           AS gap
      FROM deliver.watchlist AS w
      JOIN feed.head AS h USING (dataset)
     WHERE w.id = ANY (%(lists)s)
       AND (w.epoch <> h.epoch OR w.seq < h.floor OR w.seq > h.seq)
), noted AS (
    INSERT INTO deliver.watchlist_change (watchlist, seq, kind, body, changed_at)
    SELECT id, floor, 0, gap, clock_timestamp() FROM lost ORDER BY id
)
UPDATE deliver.watchlist AS w
   SET epoch = lost.epoch, seq = lost.floor, gap = lost.gap
  FROM lost
 WHERE w.id = lost.id
RETURNING w.name, w.dataset, w.gap ->> 'reason'

-- name: create
-- A new list at the head of its dataset.
INSERT INTO deliver.watchlist (name, owner, dataset, filter, mode, epoch, seq, digest_at)
SELECT %(name)s, %(owner)s, h.dataset, %(filter)s, %(mode)s, h.epoch, h.seq,
       deliver.next_digest(%(mode)s, %(zone)s)
  FROM feed.head AS h
 WHERE h.dataset = %(dataset)s
RETURNING id, seq

-- name: change
-- Change what a list watches and when it sends; a digest that is due already stays due.
UPDATE deliver.watchlist
   SET dataset = %(dataset)s, filter = %(filter)s, updated_at = now(),
       digest_at = CASE WHEN mode = %(mode)s THEN digest_at
                        ELSE deliver.next_digest(%(mode)s, %(zone)s) END,
       mode = %(mode)s
 WHERE id = %(id)s

-- name: start_anew
-- Place a list that watches another dataset now at its head.
WITH forgotten AS (DELETE FROM deliver.watchlist_change WHERE watchlist = %(id)s),
     old_keys AS (DELETE FROM deliver.watchlist_key WHERE watchlist = %(id)s)
UPDATE deliver.watchlist AS w
   SET epoch = h.epoch, seq = h.seq, gap = NULL
  FROM feed.head AS h
 WHERE w.id = %(id)s AND h.dataset = w.dataset
RETURNING w.seq

-- name: channel
-- One channel, unless its list is paused.
SELECT ch.id, ch.watchlist, ch.type, ch.settings, ch.endpoint
  FROM deliver.watchlist_channel AS ch
  JOIN deliver.watchlist AS w ON w.id = ch.watchlist
 WHERE ch.id = %(id)s AND deliver.may_watch(w.owner, w.dataset)
