"""What the demo shows, scene by scene, for its terminal and for the overview."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

Language = Literal["en", "tr"]


@dataclass(frozen=True)
class Scene:
    """Something worth a look, from a minute of the story on; `place` is the page that shows it."""

    minute: int
    place: str
    look: str
    """An address of the API, or a command, that tells the same."""
    title: dict[Language, str]
    text: dict[Language, str]

    def at(self, began: datetime) -> datetime:
        return began + timedelta(minutes=self.minute)


SCENES: Final = (
    Scene(
        0,
        "changes",
        "/api/v1/einvoice/changes?limit=5&wait=60",
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
        "parcels",
        "/api/v1/parcels/changes?limit=5",
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
        "football",
        "/api/v1/fixtures/changes?limit=5",
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
        "runs",
        "hasat gib runs",
        {
            "en": "Half a list arrives, and the guard asks you",
            "tr": "Listenin yarısı gelir, bekçi size sorar",
        },
        {
            "en": "Two thousand taxpayers seem to be gone. The guard holds the whole run and shows "
            "what it would remove. Reject it, or wait five minutes: a whole list settles it.",
            "tr": "İki bin mükellef yok olmuş görünür. Bekçi çalışmayı bütünüyle bekletir ve neyin "
            "silineceğini gösterir. Reddedin ya da beş dakika bekleyin: tam liste gelince konu "
            "kapanır.",
        },
    ),
    Scene(
        5,
        "football",
        "/api/v1/fixtures/changes?limit=5",
        {
            "en": "A score is corrected after the match",
            "tr": "Bir skor maçtan sonra düzeltilir",
        },
        {
            "en": "A goal turns out to be none. Whoever follows gets the correction as a change "
            "with what it was before. League 6 tells its results late: its matches are marked as "
            "probably over, and never as a fact.",
            "tr": "Bir gol iptal olur. İzleyen, düzeltmeyi önceki hâliyle birlikte bir değişiklik "
            "olarak alır. 6. lig sonuçlarını geç bildirir: maçları kesin değil, büyük olasılıkla "
            "bitmiş diye işaretlenir.",
        },
    ),
    Scene(
        10,
        "runs",
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
    ),
)
