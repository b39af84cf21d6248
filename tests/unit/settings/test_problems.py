"""Every problem is reported at once, with its place, a suggestion and without any secret."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hasat.errors import SettingsError
from hasat.messages import is_translated, translate
from hasat.settings import Settings, load_settings
from hasat.settings.files import file_names
from hasat.settings.reference import shown_values
from hasat.settings.tree import leaves


def files(tmp_path: Path, **texts: str) -> dict[str, str]:
    """An environment whose configuration folder holds these files; ``__`` in a name is a slash."""
    for name, text in texts.items():
        path = tmp_path / "config" / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return {"HASAT_HOME": str(tmp_path / "home")}


def problems(
    tmp_path: Path, environ: dict[str, str], flags: dict[str, str] | None = None
) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags or {}, {"HASAT_HOME": "/nowhere", **environ}, tmp_path)
    assert caught.value.exit_code == 2
    return caught.value.message.splitlines()


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    environ = files(
        tmp_path,
        hasat="serve:\n  prot: 1\n  port: 0\nlog: loud\nport: 3\n",
        gib="\nbatch_size: 100001\nmax_allowed_removal_percent: 101\nchange_retention_days: 0",
        jobs__daily="jobs:\n- {job_id: a, interval: {cron: x}}\n- {enabled: true}\n",
    )
    environ |= {"HASAT_SERVE_PROT": "1", "GibEndpoints__DownloadTimeout": "01:00:01"}
    environ |= {"SCHEDULER_TIMEZONE": "Mars/Olympus", "HASAT_JOBS_CONCURRENCY": "many"}
    assert sorted(problems(tmp_path, environ, {"serve.hots": "x"})) == sorted(
        [
            "serve.hots (flag): there is no such setting; did you mean 'serve.host'?",
            "config/hasat.yaml:2: there is no setting 'prot' in serve; did you mean 'port'?",
            "config/hasat.yaml:4: log must contain keys and values.",
            "config/hasat.yaml:5: there is no setting 'port'; did you mean 'serve.port' "
            "or 'mcp.port' "
            "or 'tkgm.endpoint.port'?",
            "config/jobs/daily.yaml:3: a job needs its job_id.",
            "HASAT_SERVE_PROT: there is no such setting; did you mean 'HASAT_SERVE_PORT'?",
            "serve.port: '0' (config/hasat.yaml:3) must be at least 1.",
            "jobs.timezone: 'Mars/Olympus' (SCHEDULER_TIMEZONE) is no time zone; "
            "use an IANA name such as Europe/Istanbul.",
            "jobs.concurrency: 'many' (HASAT_JOBS_CONCURRENCY) is not a whole number.",
            "jobs.schedule.a.cron: 'x' (config/jobs/daily.yaml:2) is no cron expression of five "
            "fields: minute hour day month weekday.",
            "gib.batch_size: '100001' (config/gib.yaml:2) must be at most 100000.",
            "gib.download_timeout: '01:00:01' (GibEndpoints__DownloadTimeout) must be more than 0 "
            "and at most 1h.",
            "gib.change_retention_days: '0' (config/gib.yaml:4) must be at least 1.",
            "gib.max_allowed_removal_percent: '101' (config/gib.yaml:3) must be at most 100.",
        ]
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "a: [1",
            "config/hasat.yaml:1: this is not YAML: expected ',' or ']', but got '<stream end>'.",
        ),
        ("a: 1\n\tb: 2", "config/hasat.yaml:2: this is not YAML: found character '\\t'"),
        ("log: {level: info}\nlog: {level: info}", "config/hasat.yaml:2: 'log' stands here for"),
        ("log: !!python/name:os.system x", "config/hasat.yaml:1: the tag"),
        ("- a", "config/hasat.yaml:1: the file must contain keys and values."),
        ("log: &x {a: *x}", "config/hasat.yaml is nested too deeply or contains itself."),
        (
            "home: /x",
            "config/hasat.yaml:1: 'home' cannot be set here: it names the folder of the files",
        ),
        ("serve: {port: [1]}", "config/hasat.yaml:1: serve.port must be one value."),
        ("a: 1\n---\nb: 2", "config/hasat.yaml:2: this is not YAML: but found another document."),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    found = problems(tmp_path, files(tmp_path, hasat=text))
    assert any(line.startswith(problem) for line in found), found


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    environ = files(tmp_path, hasat="")
    (tmp_path / "config" / "hasat.yaml").write_bytes(
        "webhooks: {service_name: şık}".encode("cp1254")
    )
    assert problems(tmp_path, environ) == ["config/hasat.yaml is not UTF-8 text (byte 25)."]


def test_two_files_that_disagree_are_both_named(tmp_path: Path) -> None:
    environ = files(tmp_path, hasat="gib:\n  batch_size: 1", gib="batch_size: 2")
    assert problems(tmp_path, environ) == [
        "gib.batch_size is set in config/hasat.yaml:2 and, differently, in config/gib.yaml:1."
    ]


def test_two_files_may_say_the_same(tmp_path: Path) -> None:
    environ = files(tmp_path, hasat="gib:\n  batch_size: 7", gib="gib: {batch_size: 7}")
    assert load_settings({}, environ, tmp_path).gib.batch_size == 7


def test_a_job_in_two_files_is_no_secret(tmp_path: Path) -> None:
    one = "jobs: [{job_id: a, enabled: true}]"
    other = "jobs: [{job_id: a, enabled: false}]"
    environ = files(tmp_path, jobs__daily=one, jobs__static=other)
    assert problems(tmp_path, environ) == [
        "jobs.schedule.a.enabled is set in config/jobs/daily.yaml:1 and, differently, "
        "in config/jobs/static.yaml:1."
    ]


@pytest.mark.parametrize("name", ["hasat.yml", "rate_limit.yaml", "jobs/daily.yml"])
def test_a_file_that_would_be_passed_over_is_named(tmp_path: Path, name: str) -> None:
    environ = files(tmp_path, jobs__x="")
    (tmp_path / "config" / name).write_text("", encoding="utf-8")
    # The working directory's own folder may belong to another program.
    [remark] = load_settings({}, environ, tmp_path).remarks
    assert remark.startswith(f"config/{name} is not read")
    chosen = {**environ, "HASAT_CONFIG": str(tmp_path / "config")}
    (tmp_path / "elsewhere").mkdir()
    [problem] = problems(tmp_path / "elsewhere", chosen)
    assert problem.startswith(f"{tmp_path}/config/{name} is not read")


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    environ = files(tmp_path, database="production: {adapter: x}", app="[")
    loaded = load_settings({}, environ, tmp_path)
    assert (loaded.files, loaded.remarks) == ((), ())


def test_parts_of_a_list_are_named_with_their_line(tmp_path: Path) -> None:
    text = (
        "tracked_leagues:\n- id: 39\n  seasn: 2025\n- id: x\n  season: 2025\n- {id: 1, season: 9}"
    )
    assert problems(tmp_path, files(tmp_path, jobs__daily=text)) == [
        "football.tracked_leagues[0].season: (config/jobs/daily.yaml:2) is missing.",
        "config/jobs/daily.yaml:3: there is no 'football.tracked_leagues[0].seasn'; "
        "did you mean 'season'?",
        "football.tracked_leagues[1].id: 'x' (config/jobs/daily.yaml:4) is not a whole number.",
        "football.tracked_leagues[2].season: '9' (config/jobs/daily.yaml:6) must be at least 1900.",
    ]


@pytest.mark.parametrize("name", ["hasat.yaml", "rate_limiter.yaml", "jobs/daily.yaml"])
@pytest.mark.parametrize("what", ["folder", "dangling link"])
def test_what_has_the_name_of_a_file_and_is_none_is_a_mistake(
    tmp_path: Path, name: str, what: str
) -> None:
    path = tmp_path / "etc" / name
    path.parent.mkdir(parents=True)
    path.mkdir() if what == "folder" else path.symlink_to("nowhere")
    with pytest.raises(SettingsError, match=f"etc/{name} is not a file or a link to one"):
        load_settings(environ={"HASAT_CONFIG": "etc"}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"API_FOOTBALL_BASE_URL": "http://api.example"}, "must be https"),
        ({"GibEndpoints__PkListUrl": "ftp://x/y"}, "is not an http or https address"),
        ({"GibEndpoints__PkListUrl": "https://u:p@x/y"}, "is no place for credentials"),
        ({"ArchiveStorage__Provider": "Tape"}, "must be one of 'FileSystem' or 'S3'"),
        ({"ArchiveStorage__Provider": "S3"}, "archives: provider S3 needs bucket_name."),
        ({"HASAT_JOBS_STALLED_SECONDS": "5"}, "stalled_seconds must be longer"),
        ({"HASAT_FOOTBALL_RATE_LIMITER_EMERGENCY_STOP_THRESHOLD": "75000"}, "nothing is ever sent"),
        (
            {"HASAT_JOBS_SCHEDULE": "[]"},
            "jobs.schedule: HASAT_JOBS_SCHEDULE must be a mapping of jobs.",
        ),
        ({"HASAT_JOBS_SCHEDULE": "{"}, "the value of HASAT_JOBS_SCHEDULE is not JSON."),
        (
            {"HASAT_CONFIG": "nowhere"},
            "nowhere (environment HASAT_CONFIG) is not a folder that can",
        ),
        ({"API_FOOTBALL_API_CONFIG": "x.yaml"}, "x.yaml, which does not exist."),
        ({"HASAT_HOST": "http://x:1"}, "write it without scheme and port"),
        ({"HASAT_JOBS_DRAIN_SECONDS": "nan"}, "is not a number"),
        ({"Authentication__Clients__0__Name": "x"}, "clients[0].access_key"),
        (
            {"HASAT_WEBHOOKS_ENABLED": "1", "Webhooks__Http__Enabled": "1"},
            "webhooks: http.enabled needs http.url.",
        ),
    ],
)
def test_values_that_cannot_work_are_refused(
    tmp_path: Path, environ: dict[str, str], problem: str
) -> None:
    assert problem in "\n".join(problems(tmp_path, environ))


@pytest.mark.parametrize(
    "environ",
    [
        {"DATABASE_URL": "mysql://u:S3cr3t@h/x"},
        {"DATABASE_URL": "postgresql://u:S3cr3t@h:x/d"},
        {"ConnectionStrings__DefaultConnection": "Password=S3cr3t"},
        {"HASAT_AUTHENTICATION_CLIENTS": '[{"access_key": "a", "secret_kez": "S3cr3t"}]'},
        {"HASAT_AUTHENTICATION_CLIENTS": "S3cr3t"},
        {"HASAT_ARCHIVES_ACCESS_KEY": "S3cr3t"},
        {"GibEndpoints__PkListUrl": "https://u:S3cr3t@x/y"},
    ],
)
def test_no_message_repeats_a_secret(tmp_path: Path, environ: dict[str, str]) -> None:
    assert "S3cr3t" not in "\n".join(problems(tmp_path, environ))


def test_a_secret_is_never_taken_from_a_flag(tmp_path: Path) -> None:
    assert problems(tmp_path, {}, {"football.api_key": "S3cr3t"}) == [
        "football.api_key is a secret, and flags are visible to all users of this machine; "
        "set HASAT_FOOTBALL_API_KEY or HASAT_FOOTBALL_API_KEY_FILE instead."
    ]


def test_a_secret_in_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    environ = {
        "API_FOOTBALL_KEY_FILE": str(tmp_path / "none"),
        "HASAT_DATABASE_URL_FILE": str(tmp_path / "empty"),
        "Webhooks__Http__Secret": "a",
        "Webhooks__Http__Secret_FILE": str(tmp_path / "empty"),
    }
    assert sorted(problems(tmp_path, environ)) == [
        f"API_FOOTBALL_KEY_FILE names {tmp_path}/none, which cannot be read: "
        "No such file or directory.",
        f"HASAT_DATABASE_URL_FILE names {tmp_path}/empty, which is empty.",
        "Webhooks__Http__Secret and Webhooks__Http__Secret_FILE are both set; keep one.",
    ]


def secretive(tmp_path: Path) -> Settings:
    (tmp_path / "key").write_text("the-key\n", encoding="utf-8")
    environ = {
        "HASAT_HOME": str(tmp_path),
        "API_FOOTBALL_KEY_FILE": str(tmp_path / "key"),
        "DATABASE_URL": "postgresql://u:pass%20word@h/d",
        "HASAT_AUTHENTICATION_CLIENTS": '[{"access_key": "a", "secret_key": "hmac"}]',
        "Webhooks__Slack__WebhookUrl": "https://hooks.example/T/x",
    }
    return load_settings({}, environ, tmp_path)


def test_secrets_are_known_to_whoever_must_hide_them(tmp_path: Path) -> None:
    assert secretive(tmp_path).secrets() == {
        "the-key",
        "postgresql://u:pass%20word@h/d",
        "pass%20word",
        "pass word",
        "hmac",
        "https://hooks.example/T/x",
    }


def test_secrets_are_not_in_any_printed_form(tmp_path: Path) -> None:
    loaded = secretive(tmp_path)
    for form in (repr(loaded), str(loaded), loaded.model_dump_json(), str(loaded.origins)):
        assert not any(secret in form for secret in loaded.secrets())
    assert loaded.origin("football.api_key").where == "API_FOOTBALL_KEY_FILE"


def test_a_secret_in_an_open_file_is_remarked(tmp_path: Path) -> None:
    environ = files(tmp_path, hasat="football: {api_key: 0123}")
    (tmp_path / "config" / "hasat.yaml").chmod(0o644)
    loaded = load_settings({}, environ, tmp_path)
    assert loaded.football.api_key is not None
    assert loaded.football.api_key.get_secret_value() == "0123"
    [remark] = loaded.remarks
    assert remark.startswith("config/hasat.yaml contains a secret and is readable")


def test_variables_of_hasat_that_are_no_settings(tmp_path: Path) -> None:
    environ = {"HASAT_HOME": "/nowhere", "HASAT_PARENT_FD": "3", "HASAT_TEST_SERVER": "x"}
    load_settings({}, environ, tmp_path)


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5))
def test_any_environment_ends_in_settings_or_in_sentences(environ: dict[str, str]) -> None:
    with contextlib.suppress(SettingsError):
        load_settings({}, {"HASAT_HOME": "/nowhere", **environ}, Path("/nowhere"))


@given(st.binary(max_size=200))
def test_any_bytes_in_a_file_end_in_settings_or_in_sentences(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("config")
    (folder / "hasat.yaml").write_bytes(content)
    with contextlib.suppress(SettingsError):
        load_settings({}, {"HASAT_HOME": "/nowhere", "HASAT_CONFIG": str(folder)}, folder)


_KEYS = sorted({part for key in leaves() for part in key.split(".")} | {"job_id", "id", "<<"})
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        ["info", "S3", "0 6 * * *", "Host=a;b", "postgresql://x:y", "~x/y", "x" * 300]
    )
)
_ANYTHING = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(
    documents=st.dictionaries(
        st.sampled_from([*file_names(), "jobs/x.yaml"]), _ANYTHING, max_size=3
    ),
    flags=st.dictionaries(st.sampled_from(sorted(leaves())), _ANYTHING.map(json.dumps), max_size=3),
)
def test_anything_in_known_places_ends_in_settings_or_in_sentences(
    tmp_path_factory: pytest.TempPathFactory, documents: dict[str, object], flags: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("config")
    (folder / "jobs").mkdir()
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document), encoding="utf-8")
    environ = {"HASAT_HOME": "/nowhere", "HASAT_CONFIG": str(folder)}
    with contextlib.suppress(SettingsError):
        shown_values(load_settings(flags, environ, folder))


def test_problems_are_explained_in_turkish(tmp_path: Path) -> None:
    environ = files(
        tmp_path,
        hasat="serve:\n  prot: 1\nport: 3\nlog: loud\njobs:\n  stalled_seconds: 1\n",
        jobs__daily="jobs:\n- {enabled: true}\n",
        gib="batch_size: 0\npk_list_url: ftp://x\ndownload_timeout: soon\n",
    )
    environ |= {"HASAT_ARCHIVES_PROVIDER": "S3", "HASAT_LOG_LEVEL": "LOUD"}
    with pytest.raises(SettingsError) as error:
        load_settings(environ=environ, cwd=tmp_path)
    assert is_translated(error.value.message, "tr")
    turkish = translate(error.value.message, "tr")
    assert "'prot' adlı bir ayar yok (serve içinde); 'port' mi demek istediniz?" in turkish
    assert "her görevin bir job_id değeri olmalı." in turkish
