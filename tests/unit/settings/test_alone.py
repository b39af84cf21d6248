"""Who must not be set by the environment is not."""

from hasat.settings import load_settings
from hasat.settings.environment import without_settings


def test_everything_that_sets_something_is_left_out() -> None:
    environ = {
        "PATH": "/bin",
        "LANG": "tr_TR.UTF-8",
        "DATABASE_URL": "postgresql://x@db/prod",
        "POSTGRES_HOST": "db",
        "HASAT_HOME": "/srv",
        "HASAT_PORT": "9000",
        "GibEndpoints__PkListUrl": "https://example.org",
        "authentication__clients__0__secretkey": "s",
        "API_FOOTBALL_KEY_FILE": "/run/key",
        "HASAT_PARENT_FD": "7",
    }
    alone = without_settings(environ, keep=["HASAT_PORT"])
    assert alone.keys() == {"PATH", "LANG", "HASAT_PORT", "HASAT_PARENT_FD"}
    settings = load_settings(environ=alone)
    assert settings.database.url is None
    assert settings.serve.port == 9000
