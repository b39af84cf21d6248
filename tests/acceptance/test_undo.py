"""An approved half list is undone, and the next sync compares everything again."""

from pathlib import Path

import psycopg

from support.processes import Installation


def _list(folder: Path, count: int) -> str:
    users = "".join(
        f"<User><Identifier>{1000000000 + number}</Identifier><Title>DENİZ {number}</Title>"
        "<Type>OZEL</Type><FirstCreationTime>2019-05-01T10:00:00</FirstCreationTime><Documents>"
        f'<Document type="Invoice"><Alias><Name>urn:mail:pk@d{number}.example</Name>'
        "<CreationTime>2019-05-01T10:00:00</CreationTime></Alias></Document></Documents></User>"
        for number in range(count)
    )
    path = folder / f"{count}.xml"
    path.write_text(f"<UserList>{users}</UserList>", "utf-8")
    return str(path)


def _records(installation: Installation) -> int:
    with psycopg.connect(installation.environ["HASAT_DATABASE_URL"]) as conn:
        [count] = conn.execute("SELECT count(*) FROM core.einvoice").fetchone() or [0]
    return int(count)


def test_an_approved_list_is_undone_by_a_hold_of_its_own(
    hosted: Installation, tmp_path: Path
) -> None:
    whole, half = _list(tmp_path, 40), _list(tmp_path, 20)
    hosted.call("gib", "sync", "--pk", whole, "--gb", whole)
    hosted.call("gib", "sync", "--pk", half, "--gb", half)
    [hold] = hosted.json("holds", "list", "--state", "waiting")
    applied = hosted.json("holds", "approve", str(hold["id"]), "--reason", "by mistake")
    assert _records(hosted) == 20
    undo = hosted.json("holds", "undo", str(applied["run"]), "--reason", "it was cut off")
    assert undo["outcome"] == "held"
    [waiting] = hosted.json("holds", "list", "--state", "waiting")
    assert waiting["preview"]["datasets"]["einvoice"]["added"] == 20
    assert hosted.json("holds", "approve", str(waiting["id"]))["outcome"] == "done"
    assert _records(hosted) == 40
    # The same half list is compared completely and held again, the whole one changes nothing.
    hosted.call("gib", "sync", "--pk", half, "--gb", half)
    assert _records(hosted) == 40
    same = hosted.call("gib", "sync", "--pk", whole, "--gb", whole)
    assert same.returncode == 0, same.stderr
    assert _records(hosted) == 40
