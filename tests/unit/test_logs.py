"""No log line of any module carries a secret or a personal number."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from hasat.errors import SettingsError
from hasat.logs import configure_logging, redactor
from hasat.settings import load_settings

SECRET = 'pa"ss\\wörd-4711'
PERSON = "10000000146"


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    environ = {"HASAT_HOME": str(tmp_path), "API_FOOTBALL_KEY": SECRET}
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    configure_logging(load_settings(environ=environ), stream=stream)
    yield stream
    root.handlers[:], root.level = before
    logging.captureWarnings(False)
    structlog.reset_defaults()


def test_our_own_lines_are_json_with_what_was_bound(stream: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(run=7, job="gib_sync", source="gib"):
        structlog.get_logger("hasat.x").info("list read", users=3)
    line = json.loads(stream.getvalue())
    assert (line["run"], line["job"], line["source"]) == (7, "gib_sync", "gib")
    assert (line["event"], line["users"], line["level"]) == ("list read", 3, "info")


def test_neither_secrets_nor_persons_appear_however_they_are_logged(stream: io.StringIO) -> None:
    log = structlog.get_logger()
    log.warning(f"key {SECRET} of {PERSON}", key=SECRET, deep={"list": [SECRET, int(PERSON)]})
    logging.getLogger("some.library").error("GET /v1/%s?key=%s", PERSON, SECRET)
    try:
        raise ValueError(f"{PERSON}: {SECRET}")
    except ValueError:
        log.exception("it broke")
    text = stream.getvalue()
    assert len(text.splitlines()) == 3
    assert PERSON not in text
    assert "4711" not in text
    assert text.count("100******46") >= 4


def test_the_chatter_of_libraries_is_left_out_and_their_warnings_are_kept(
    stream: io.StringIO,
) -> None:
    logging.getLogger("procrastinate.worker").info("polling")
    logging.getLogger("procrastinate.worker").warning("trouble")
    assert "polling" not in stream.getvalue()
    assert "trouble" in stream.getvalue()


def test_a_very_short_secret_does_not_turn_the_log_into_stars() -> None:
    assert redactor(["a"])("a banana") == "a banana"


@pytest.mark.parametrize("name", ["nowhere/hasat.log", "."])
def test_a_log_file_that_cannot_be_opened_is_one_sentence(tmp_path: Path, name: str) -> None:
    environ = {"HASAT_HOME": str(tmp_path), "HASAT_LOG_FILE": str(tmp_path / name)}
    with pytest.raises(SettingsError, match="The log file"):
        configure_logging(load_settings(environ=environ), stream=io.StringIO())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_log_file_on_a_full_disk_is_reported_once(
    tmp_path: Path, stream: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"HASAT_HOME": str(tmp_path), "HASAT_LOG_FILE": "/dev/full"}
    configure_logging(load_settings(environ=environ), stream=stream)
    for number in range(3):
        structlog.get_logger("hasat.x").info("list read", users=number)
    logging.basicConfig(handlers=[logging.NullHandler()], force=True)
    written = stream.getvalue()
    assert written.count("The log file /dev/full cannot be written: No space left") == 1
    assert written.count("list read") == 3
    assert "Traceback" not in written + capsys.readouterr().err
