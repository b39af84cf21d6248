"""Where the embedded server's socket lies, and what makes two folders two servers."""

import os
import shutil
import tempfile
from pathlib import Path
from urllib.parse import unquote

import pytest
from psycopg.conninfo import conninfo_to_dict

from hasat.errors import DatabaseError
from hasat.store.embedded.account import Account
from hasat.store.embedded.layout import Layout, make_private, url_of

ME = Account("me", os.geteuid(), os.getegid())


def _layout(folder: Path) -> Layout:
    layout = Layout(folder / "postgres")
    layout.make()
    return layout


def test_the_identity_stays(tmp_path: Path) -> None:
    assert _layout(tmp_path).identity() == _layout(tmp_path).identity()


def test_a_moved_folder_is_the_same_server_and_a_copied_one_is_another(tmp_path: Path) -> None:
    identity = _layout(tmp_path / "old").identity()
    (tmp_path / "old").rename(tmp_path / "new")
    assert _layout(tmp_path / "new").identity() == identity
    shutil.copytree(tmp_path / "new", tmp_path / "copy")
    assert _layout(tmp_path / "copy").identity() != identity


def test_a_long_path_has_its_socket_elsewhere(tmp_path: Path) -> None:
    layout = _layout(tmp_path / ("uzun" * 30))
    (folder,) = layout.socket_folders()
    assert folder == Path("/tmp") / layout.identity()


def test_letters_count_as_the_bytes_they_are() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        layout = _layout(Path(short) / ("ş" * 35))
        assert len(str(layout.run)) < 80 < len(os.fsencode(layout.run))
        assert layout.run not in layout.socket_folders()


@pytest.mark.parametrize("name", ["ışık", "a b", "a'b", 'a"b', "a,b", "a%b", "a?b&c=d", "a@b:c#d"])
def test_any_path_survives_in_the_address(name: str) -> None:
    found = conninfo_to_dict(url_of(Path("/yol") / name))
    assert found["host"] == f"/yol/{name}"
    assert found["dbname"] == found["user"] == "hasat"
    assert unquote(url_of(Path("/yol") / name)).isprintable()


def test_a_private_folder_is_made_private(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o777)
    make_private(folder, ME)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_somebody_put_in_its_place_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(DatabaseError, match="not safe"):
            make_private(tmp_path / name, ME)
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    os.chown(tmp_path / "run", 12345, 12345)
    with pytest.raises(DatabaseError, match="not safe"):
        make_private(tmp_path / "run", ME)
