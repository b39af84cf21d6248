"""What the demo shows, scene by scene, for its terminal and for the overview."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal
from zoneinfo import ZoneInfo

from hasat.settings import Settings

Language = Literal["en", "tr"]


@dataclass(frozen=True)
class Scene:
    """Something worth a look, from a minute of the story on; `page` shows it."""

    minute: int
    page: str
    look: str
    """An address, or a command, that tells the same."""
    title: dict[Language, str]
    text: dict[Language, str]
    every_hour: bool = False

    def at(self, began: datetime, started: datetime) -> datetime | None:
        """When it can first be seen since a start of the demo; None if that was before.

        Upstreams begin some seconds later, jobs look at the full minute.
        """
        happens = began + timedelta(minutes=self.minute, seconds=15)
        seen = happens.replace(second=0, microsecond=0) + timedelta(minutes=1)
        while self.every_hour and seen < started:
            seen += timedelta(hours=1)
        return seen if seen >= started else None


@dataclass(frozen=True)
class Told:
    """A scene at a moment: when it can be seen, and whether that has passed."""

    scene: Scene
    at: datetime | None
    is_over: bool

    def when(self, language: Language, zone: ZoneInfo) -> str:
        """As a few words."""
        words = WORDS[language]
        if self.at is None:
            return words["from the start" if self.scene.minute == 0 else "before this start"]
        time = f"{self.at.astimezone(zone):%H:%M}"
        return f"{time}, {words['happened']}" if self.is_over else time


def told(settings: Settings, now: datetime) -> list[Told]:
    """The story as far as it is; nothing where this is not the demo."""
    began, started = settings.demo.began, settings.demo.started
    if began is None or started is None:
        return []
    times = [scene.at(began, started) if scene.minute else None for scene in SCENES]
    return [
        Told(scene, at, at is not None and at <= now)
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
            "en": "The publisher only ever shows the whole list. Hasat finds out what changed and "
            "numbers every change without gaps: a follower can prove that it missed nothing.",
            "tr": "Yayıncı hep listenin tamamını verir. Hasat neyin değiştiğini bulur ve her "
            "değişikliği boşluksuz numaralar: izleyen, hiçbir şey kaçırmadığını kanıtlayabilir.",
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
            "en": "The registry answers one point at a time, so many a day. Watch the map fill; "
            "the scan asks where most is still unknown, and goes on where it was after any stop.",
            "tr": "Kayıt sistemi her soruda tek noktayı, günde belli sayıda yanıtlar. Haritanın "
            "dolmasını izleyin; tarama en çok neresi bilinmiyorsa orayı sorar, durdurulursa "
            "kaldığı yerden sürer.",
        },
    ),
    Scene(
        1,
        "/football",
        "/api/v1/football/fixtures?state=live",
        {
            "en": "A match day at 60 times its speed",
            "tr": "60 kat hızlı bir maç günü",
        },
        {
            "en": "Two minutes a match, a round every hour and a half. Scores, events and tables "
            "follow, within the requests a day that the plan allows.",
            "tr": "Bir maç iki dakika sürer, her bir buçuk saatte yeni hafta başlar. Skorlar, "
            "olaylar ve puan durumu, planın izin verdiği günlük istek sayısı içinde izlenir.",
        },
    ),
    Scene(
        3,
        "/runs?job=gib_sync",
        "hasat gib runs",
        {
            "en": "Half a list arrives, and the guard asks you",
            "tr": "Listenin yarısı gelir, bekçi size sorar",
        },
        {
            "en": "More than a thousand taxpayers seem to be gone. The guard holds the whole run "
            "and shows what it would remove. Reject it: as long as the half list is published, the "
            "next run asks again. After five minutes the whole list comes back and settles it.",
            "tr": "Binden çok mükellef yok olmuş görünür. Bekçi çalışmayı bütünüyle bekletir ve "
            "neyin silineceğini gösterir. Reddedin: yarım liste yayında kaldıkça sonraki çalışma "
            "yeniden sorar. Beş dakika sonra tam liste gelir, konu kapanır.",
        },
        every_hour=True,
    ),
    Scene(
        4,
        "/delivery",
        "hasat webhooks dead-letters",
        {
            "en": "The bookkeeping is told, and does not listen",
            "tr": "Muhasebeye haber verilir, dinleyen olmaz",
        },
        {
            "en": "Whoever wants to know is told of every sync by webhook. For five minutes nobody "
            "answers there: what was tried in vain becomes a dead letter, which waits for you to "
            "send it again, under its old id.",
            "tr": "Bilmek isteyene her eşitleme webhook ile bildirilir. Orada beş dakika kimse "
            "yanıt vermez: boşuna denenen, ölü mektup olur ve eski kimliğiyle yeniden "
            "göndermenizi bekler.",
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
            "en": "A goal turns out to be none. Whoever follows gets the correction as a change "
            "with what it was before. League 6 tells its results late: until then its matches stay "
            "as they were told, and nothing is made up.",
            "tr": "Bir gol iptal olur. İzleyen, düzeltmeyi önceki hâliyle birlikte bir değişiklik "
            "olarak alır. League 6 sonuçlarını geç bildirir: o zamana kadar maçları bildirildiği "
            "gibi kalır, hiçbir şey uydurulmaz.",
        },
    ),
    Scene(
        10,
        "/runs?bad=1",
        "hasat jobs history --failed",
        {
            "en": "A file ends in its middle",
            "tr": "Bir dosya ortasında biter",
        },
        {
            "en": "The run fails with a sentence that says why, and nothing has changed. The next "
            "one reads the list again.",
            "tr": "Çalışma nedenini söyleyen bir cümleyle başarısız olur, hiçbir şey değişmez. "
            "Sonraki çalışma listeyi yeniden okur.",
        },
        every_hour=True,
    ),
    Scene(
        12,
        "/football",
        "/api/v1/football/fixtures?inferred=true",
        {
            "en": "The API is silent, and matches are probably over",
            "tr": "API susar, maçlar büyük olasılıkla bitmiştir",
        },
        {
            "en": "For minutes it answers nothing while matches are played. They are marked as "
            "probably over, beside what was told and never as a fact. Its first word ends that.",
            "tr": "Maçlar oynanırken dakikalarca yanıt vermez. Maçlar bildirilenin yanında "
            "büyük olasılıkla bitmiş diye işaretlenir, kesin bilgi diye değil. API'nin ilk sözüyle "
            "işaret kalkar.",
        },
    ),
)

WORDS: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        "starting": "Starting the demo: PostgreSQL, the API, a worker and simulated upstreams.",
        "folder": "Its data lives in {home}; no real upstream is called.",
        "running": "The demo in {home} runs already, at {where}.",
        "another": "Open that page, or end it with Ctrl-C where it was started. Another demo wants "
        "another folder and another port: hasat --home OTHER --set serve.port=9000 demo",
        "ready": "Hasat is ready at {where}",
        "status": "status",
        "metrics": "metrics",
        "tools": "tools",
        "database": "database",
        "embedded": "embedded",
        "jobs": "jobs",
        "stop": "Stop with Ctrl-C; running work is finished first.",
        "look": "What to look at, at {where} or here:",
        "from the start": "from the start",
        "before this start": "before this start",
        "happened": "happened",
        "commands": "Times are those of {zone}. Commands want to know which house is meant:",
        "break": "Break something:",
        "mend": "And mend it:    ",
        "taxpayers": "taxpayers",
        "parcels": "parcels",
        "matches": "matches",
        "harvested": "Harvested: {told}. From now on only changes are brought in.",
    },
    "tr": {
        "starting": "Demo başlıyor: PostgreSQL, API, bir işçi ve taklit kaynaklar.",
        "folder": "Verileri {home} klasöründe; hiçbir gerçek kaynağa sorulmaz.",
        "running": "{home} klasöründeki demo zaten çalışıyor: {where}",
        "another": "O sayfayı açın ya da başlatıldığı yerde Ctrl-C ile bitirin. Başka bir demo "
        "başka bir klasör ve kapı ister: hasat --home BASKA --set serve.port=9000 demo",
        "ready": "Hasat hazır: {where}",
        "status": "durum",
        "metrics": "ölçümler",
        "tools": "araçlar",
        "database": "veritabanı",
        "embedded": "gömülü",
        "jobs": "görevler",
        "stop": "Ctrl-C ile durdurun; süren iş önce bitirilir.",
        "look": "Neye bakmalı, {where} adresinde ya da burada:",
        "from the start": "baştan beri",
        "before this start": "daha önce oldu",
        "happened": "oldu",
        "commands": "Saatler {zone}. Komutlar hangi kurulumdan söz edildiğini bilmek ister:",
        "break": "Bir şeyi bozun:",
        "mend": "Düzeltin:      ",
        "taxpayers": "mükellef",
        "parcels": "parsel",
        "matches": "maç",
        "harvested": "Hasat edildi: {told}. Bundan sonra yalnızca değişiklikler alınır.",
    },
}
"""What the terminal tells beside the scenes; Hasat's own messages are English."""


def spoken(environ: Mapping[str, str]) -> Language:
    """What a terminal speaks."""
    named = (environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "tr" if next(filter(None, named), "").startswith("tr") else "en"
