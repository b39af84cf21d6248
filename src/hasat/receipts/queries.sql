-- name: versions
-- The versions of some datasets, as the snapshot of an answer sees them.
SELECT dataset, epoch, seq, version, records, digest, committed_at
  FROM feed.head
 WHERE dataset = ANY (%(datasets)s) AND committed_at IS NOT NULL
 ORDER BY dataset

-- name: raw_lists
-- The newest applied raw response that covers the whole dataset, and that of one record.
SELECT DISTINCT ON (key) coalesce(key, dataset) AS name, sha256
  FROM raw.response
 WHERE dataset = %(dataset)s AND (key IS NULL OR key = %(key)s) AND complete AND applied_at IS NOT NULL
 ORDER BY key, applied_at DESC, id DESC

-- name: lock_chain
-- The newest end of the chain, until the receipt after it is committed.
SELECT number, hash, clock_timestamp() AS now FROM serve.receipt_chain FOR UPDATE

-- name: append
-- Append a receipt to the chain, and list the key that signed it.
WITH listed AS (
    INSERT INTO serve.receipt_key (kid, public_key) VALUES (%(kid)s, %(public_key)s)
    ON CONFLICT DO NOTHING
), moved AS (
    UPDATE serve.receipt_chain SET number = %(number)s, hash = %(hash)s
)
INSERT INTO serve.receipt (number, id, identifier, datasets, owner, kid, issued_at, jws, hash)
VALUES (%(number)s, %(id)s, %(identifier)s, %(datasets)s, %(owner)s, %(kid)s, %(issued_at)s, %(jws)s,
        %(hash)s)

-- name: list_key
-- List a public key.
INSERT INTO serve.receipt_key (kid, public_key) VALUES (%(kid)s, %(public_key)s)
ON CONFLICT DO NOTHING

-- name: keys
-- Every public key, oldest first.
SELECT public_key FROM serve.receipt_key ORDER BY added_at, kid

-- name: find
-- Receipts, newest first: one, or those about an identifier, of an owner or before a number.
SELECT number, id, identifier, datasets, owner, kid, issued_at, jws, hash
  FROM serve.receipt
 WHERE (%(id)s::uuid IS NULL OR id = %(id)s)
   AND (%(identifier)s::text IS NULL OR identifier = %(identifier)s)
   AND (%(owner)s::text IS NULL OR owner = %(owner)s)
   AND (%(before)s::bigint IS NULL OR number < %(before)s)
 ORDER BY number DESC
 LIMIT %(limit)s

-- name: chain
-- The ends of the chain.
SELECT number, hash, floor, floor_hash FROM serve.receipt_chain

-- name: export
-- Every receipt, in the order of the chain.
COPY (SELECT number, id, identifier, datasets, owner, kid, issued_at, jws, hash
        FROM serve.receipt ORDER BY number)
  TO STDOUT

-- name: carried
-- The exported receipts.
CREATE TEMP TABLE carried (LIKE serve.receipt) ON COMMIT DROP

-- name: import
-- Read the exported receipts back.
COPY carried (number, id, identifier, datasets, owner, kid, issued_at, jws, hash) FROM STDIN

-- name: relation
-- Whether the exported receipts continue the chain (they have its newest receipt, or begin where it
-- ends), and whether it contains all of them.
SELECT c.number = %(floor)s AND c.hash = %(floor_hash)s
       OR EXISTS (SELECT FROM carried AS r WHERE r.number = c.number AND r.hash = c.hash),
       EXISTS (SELECT FROM serve.receipt AS r WHERE r.number = %(number)s AND r.hash = %(hash)s)
  FROM serve.receipt_chain AS c

-- name: carry
-- Append the exported receipts that are newer than the chain, and move its end.
WITH newer AS (
    INSERT INTO serve.receipt (number, id, identifier, datasets, owner, kid, issued_at, jws, hash)
    SELECT r.number, r.id, r.identifier, r.datasets, r.owner, r.kid, r.issued_at, r.jws, r.hash
      FROM carried AS r, serve.receipt_chain AS c
     WHERE r.number > c.number
    RETURNING number
)
UPDATE serve.receipt_chain SET number = %(number)s, hash = %(hash)s
 WHERE EXISTS (SELECT FROM newer)

-- name: links
-- Some receipts in the order of the chain.
SELECT number, id, identifier, datasets, owner, kid, issued_at, jws, hash
  FROM serve.receipt
 WHERE number > %(after)s
 ORDER BY number
 LIMIT %(limit)s
