"""The scenes of the demo, for its terminal and for the overview."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from hasat.messages import Language
from hasat.settings import Settings


@dataclass(frozen=True)
class Scene:
    """Something that the demo shows on `page` from a minute of its script on."""

    minute: int
    page: str
    look: str
    """A path of the API, or a command, that shows the same."""
    title: dict[Language, str]
    text: dict[Language, str]
    every_hour: bool = False

    def at(self, began: datetime, started: datetime) -> datetime | None:
        """Return when it is first visible after a start of the demo; None if that was before.

        The simulators start some seconds after the demo, and jobs run at the full minute.
        """
        happens = began + timedelta(minutes=self.minute, seconds=15)
        seen = happens.replace(second=0, microsecond=0) + timedelta(minutes=1)
        while self.every_hour and seen < started:
            seen += timedelta(hours=1)
        return seen if seen >= started else None


@dataclass(frozen=True)
class SceneState:
    """A scene, when it is visible, and whether that has passed."""

    scene: Scene
    at: datetime | None
    is_over: bool

    def when(self, language: Language, zone: ZoneInfo) -> str:
        """Return the time, or a few words instead of it."""
        words = WORDS[language]
        if self.at is None:
            return words["from the start" if self.scene.minute == 0 else "before this start"]
        time = f"{self.at.astimezone(zone):%H:%M}"
        return f"{time}, {words['happened']}" if self.is_over else time


def scene_states(settings: Settings, now: datetime) -> list[SceneState]:
    """Return the states of all scenes; none if this is not the demo."""
    began, started = settings.demo.began, settings.demo.started
    if began is None or started is None:
        return []
    times = [scene.at(began, started) if scene.minute else None for scene in SCENES]
    return [
        SceneState(scene, at, at is not None and at <= now)
        for scene, at in zip(SCENES, times, strict=True)
    ]


SCENES: Final = (
    Scene(
        0,
        "/changes?dataset=einvoice",
        "/changes.json?dataset=einvoice",
        {
            "en": "A list of taxpayers changes every minute",
            "tr": "Mükellef listesi her dakika değişiyor",
        },
        {
            "en": "GIB only publishes complete lists. Hasat computes the changes and numbers them "
            "without gaps, so a consumer can prove that it missed nothing.",
            "tr": "GİB yalnızca listenin tamamını yayımlar. Hasat değişiklikleri bulur ve "
            "boşluksuz numaralar; izleyen, hiçbir şey kaçırmadığını kanıtlayabilir.",
        },
    ),
    Scene(
        0,
        "/parcels",
        "/changes.json?dataset=parcels",
        {
            "en": "A town is scanned, parcel by parcel",
            "tr": "Bir kasaba parsel parsel taranıyor",
        },
        {
            "en": "TKGM answers one point per request, with a daily limit. Watch the map fill: the "
            "scan asks first where most is unknown, and resumes after any stop.",
            "tr": "TKGM her istekte tek nokta yanıtlar ve günlük sınır koyar. Haritanın dolmasını "
            "izleyin: tarama önce en çok bilinmeyen yeri sorar, durdurulursa kaldığı yerden "
            "sürer.",
        },
    ),
    Scene(
        1,
        "/football",
        "/api/v1/football/fixtures?state=live",
        {
            "en": "A match day at 60 times the speed",
            "tr": "60 kat hızlı bir maç günü",
        },
        {
            "en": "A match takes two minutes, a round starts every hour and a half. Scores, events "
            "and tables are updated within the daily requests of the plan.",
            "tr": "Bir maç iki dakika sürer, her bir buçuk saatte yeni hafta başlar. Skorlar, "
            "olaylar ve puan durumu, planın izin verdiği günlük istek sayısı içinde izlenir.",
        },
    ),
    Scene(
        3,
        "/runs?job=gib_sync",
        "hasat gib runs",
        {
            "en": "Half a list arrives: your approval is needed",
            "tr": "Listenin yarısı gelir: onayınız gerekir",
        },
        {
            "en": "More than a thousand taxpayers seem to be gone. The guard holds the run and "
            "shows what it would remove. Reject it; the next run is held too while the half list "
            "is published. After five minutes the complete list is back.",
            "tr": "Binden çok mükellef silinmiş görünür. Koruma çalıştırmayı bekletir ve neyin "
            "silineceğini gösterir. Reddedin; yarım liste yayında kaldıkça sonraki çalıştırma da "
            "bekletilir. Beş dakika sonra tam liste geri gelir.",
        },
        every_hour=True,
    ),
    Scene(
        4,
        "/delivery",
        "hasat webhooks dead-letters",
        {
            "en": "A webhook receiver goes down",
            "tr": "Bir webhook alıcısı yanıt vermez",
        },
        {
            "en": "Every sync is reported by webhook. For five minutes the receiver is down: "
            "failed deliveries become dead letters, which you can send again under the same id.",
            "tr": "Her eşitleme webhook ile bildirilir. Alıcı beş dakika yanıt vermez: başarısız "
            "teslimatlar teslim edilemeyenlere düşer; aynı kimlikle yeniden gönderebilirsiniz.",
        },
        every_hour=True,
    ),
    Scene(
        5,
        "/changes?dataset=fixtures",
        "/changes.json?dataset=fixtures",
        {
            "en": "A score is corrected after the match",
            "tr": "Bir skor maçtan sonra düzeltilir",
        },
        {
            "en": "A goal is disallowed. Consumers receive the correction as a change with the "
            "record before and after. League 6 publishes its results late; until then its matches "
            "stay as last published, and nothing is guessed.",
            "tr": "Bir gol iptal olur. İzleyenler düzeltmeyi önceki ve sonraki hâliyle bir "
            "değişiklik olarak alır. League 6 sonuçlarını geç yayımlar; o zamana kadar maçları son "
            "yayımlandığı gibi kalır, tahmin yapılmaz.",
        },
    ),
    Scene(
        10,
        "/runs?bad=1",
        "hasat jobs history --failed",
        {
            "en": "A truncated download",
            "tr": "Yarıda kesilen bir indirme",
        },
        {
            "en": "The run fails with its reason and changes nothing. The next run downloads the "
            "list again.",
            "tr": "Çalıştırma nedenini bildirerek başarısız olur, hiçbir şey değişmez. Sonraki "
            "çalıştırma listeyi yeniden indirir.",
        },
        every_hour=True,
    ),
    Scene(
        12,
        "/football",
        "/api/v1/football/fixtures?inferred=true",
        {
            "en": "The API goes down while matches end",
            "tr": "Maçlar biterken API yanıt vermez",
        },
        {
            "en": "The API does not respond for minutes. Matches are marked as probably finished, "
            "separately from the published data. The mark is cleared once the API responds.",
            "tr": "API dakikalarca yanıt vermez. Maçlar, yayımlanan veriden ayrı olarak, büyük "
            "olasılıkla bitti diye işaretlenir. API yanıt verince işaret kalkar.",
        },
    ),
)

WORDS: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        "starting": "Starting the demo: PostgreSQL, the API, a worker and simulated upstreams.",
        "folder": "The data is in {home}; no real upstream is called.",
        "running": "The demo in {home} is already running at {where}.",
        "another": "Open that page, or end it with Ctrl-C where it was started. A second demo "
        "needs its own folder and port: hasat --home OTHER --set serve.port=9000 demo",
        "ready": "Hasat is ready at {where}",
        "status": "status",
        "metrics": "metrics",
        "tools": "tools",
        "database": "database",
        "embedded": "embedded",
        "jobs": "jobs",
        "stop": "Stop with Ctrl-C; running jobs finish first.",
        "look": "What to look at, at {where} or in a terminal:",
        "from the start": "from the start",
        "before this start": "before this start",
        "happened": "happened",
        "commands": "Times are in {zone}. Point the command line at the demo:",
        "break": "Break something:",
        "repair": "Repair it:      ",
        "taxpayers": "taxpayers",
        "parcels": "parcels",
        "matches": "matches",
        "loaded": "Loaded {loaded}. From now on only changes are loaded.",
    },
    "tr": {
        "starting": "Demo başlıyor: PostgreSQL, API, bir işçi süreci ve kaynak simülatörleri.",
        "folder": "Veriler {home} klasöründe; gerçek kaynaklara istek gönderilmez.",
        "running": "{home} klasöründeki demo zaten çalışıyor: {where}",
        "another": "O sayfayı açın ya da başlatıldığı yerde Ctrl-C ile durdurun. İkinci bir demo "
        "için ayrı klasör ve port verin: hasat --home BASKA --set serve.port=9000 demo",
        "ready": "Hasat hazır: {where}",
        "status": "durum",
        "metrics": "metrikler",
        "tools": "araçlar",
        "database": "veritabanı",
        "embedded": "gömülü",
        "jobs": "görevler",
        "stop": "Ctrl-C ile durdurun; çalışan görevler önce tamamlanır.",
        "look": "Nelere bakılabilir, {where} adresinde ya da terminalde:",
        "from the start": "baştan beri",
        "before this start": "daha önce oldu",
        "happened": "oldu",
        "commands": "Saatler {zone} saatidir. Komut satırını demoya yönlendirin:",
        "break": "Bir şeyi bozun:",
        "repair": "Düzeltin:      ",
        "taxpayers": "mükellef",
        "parcels": "parsel",
        "matches": "maç",
        "loaded": "Yüklendi: {loaded}. Bundan sonra yalnızca değişiklikler alınır.",
    },
}
"""Other texts of the terminal."""
