"""Look records up one after the other on one bare psycopg connection, and count.

A process of its own: the least that a lookup could cost. Reads a JSON object on stdin (`url`,
`table`, `seconds`, `keys`: lists of keys, one list per statement) and prints one.
"""

import json
import sys
import time
from itertools import cycle

import psycopg
from psycopg import sql


def main() -> None:
    wanted = json.load(sys.stdin)
    table = sql.Identifier("core", wanted["table"])
    one = sql.SQL("SELECT body FROM {} WHERE key = %s").format(table)
    many = sql.SQL("SELECT key, body FROM {} WHERE key = ANY (%s)").format(table)
    done = 0
    with psycopg.connect(wanted["url"], autocommit=True, prepare_threshold=0) as conn:
        started, processor = time.perf_counter(), time.process_time()
        ends = started + wanted["seconds"]
        for keys in cycle(wanted["keys"]):
            found = (
                conn.execute(one, keys).fetchall()
                if len(keys) == 1
                else conn.execute(many, [keys]).fetchall()
            )
            assert len(found) == len(keys)
            done += 1
            if (now := time.perf_counter()) >= ends:
                break
    result = {
        "done": done,
        "seconds": now - started,
        "processor_seconds": time.process_time() - processor,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
