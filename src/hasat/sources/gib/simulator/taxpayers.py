"""Generated taxpayers in the form of the Revenue Administration's lists.

Every taxpayer is a pure function of (seed, number, version): publishers with one seed agree on
every byte, and churn affects only the changed taxpayers. The distributions (aliases per document,
closed aliases, account types, irregular aliases) follow the published test list of 2020.
"""

import random
from dataclasses import dataclass

_FIRST = (
    "AK ALTIN ANADOLU ARAS ATA AYDIN BARAN BAŞAK BEREKET BEYAZ BİLGE BOĞAZİÇİ BURÇ CAN CEVHER ÇAĞ "
    "ÇELİK ÇINAR DENİZ DERYA DİCLE DOĞA DORUK EFE EGE EKİN ELİT ERCİYES ESEN FIRAT FİDAN GEDİZ "
    "GENÇ GÖKSU GÜNEŞ GÜVEN HİSAR ILGAZ IŞIK İDEAL İPEK KALE KAPADOKYA KARDEŞLER KAYA KERVAN KIZIL "
    "KÖŞK KUZEY LALE MARMARA MAVİ MERT MURAT NEHİR NİL OĞUZ ONUR ORHUN ÖNCÜ ÖZ ÖZGÜR PINAR POLAT "
    "SARAY SEDİR SERİN SEYHAN ŞAHİN ŞENER TAN TOROS TUNA TÜRK UĞUR ULUDAĞ ÜNAL VATAN VURAL YAĞMUR "
    "YEŞİL YILDIZ YURT ZAFER ZEYTİN ZİRVE"
)
_TRADES = (
    "AMBALAJ|BİLGİSAYAR|BİLİŞİM|CAM|DAYANIKLI TÜKETİM MALLARI|DIŞ TİCARET|ECZA DEPOSU|ELEKTRİK|"
    "ELEKTRONİK|EMLAK|ENERJİ|GIDA|HAYVANCILIK|HIRDAVAT|İLAÇ|İNŞAAT|İTHALAT İHRACAT|KAĞIT|KİMYA|"
    "KOZMETİK|KUYUMCULUK|LOJİSTİK|MADENCİLİK|MAKİNA|MATBAACILIK|MEDİKAL|METAL|MOBİLYA|MÜHENDİSLİK|"
    "NAKLİYAT|ORMAN ÜRÜNLERİ|OTOMOTİV|PETROL|PLASTİK|REKLAM|SAĞLIK HİZMETLERİ|SİGORTA ARACILIK|"
    "TARIM|TEKSTİL|TURİZM|YAPI MALZEMELERİ|YAZILIM"
)
_ENDINGS = (
    "SANAYİ VE TİCARET LİMİTED ŞİRKETİ|SAN. VE TİC. LTD. ŞTİ.|LİMİTED ŞİRKETİ|ANONİM ŞİRKETİ|"
    "TİCARET LİMİTED ŞİRKETİ|SAN.TİC.A.Ş.|PAZARLAMA A.Ş.|İŞLETMESİ"
)
FIRST, TRADES, ENDINGS = _FIRST.split(), _TRADES.split("|"), _ENDINGS.split("|")
ODD_ALIASES = (
    "defaultpk",
    "pk",
    "urn:default:pk2",
    "urn:main:Defaultpk",
    "urn:mail.defaultpk@ornek.com.tr",
    " urn:mail:bosluk@ornek.com.tr",
    "urn:mail:defaultpk@ornekyağlar.com.tr",
)
_TO_DOMAIN = str.maketrans("ÇĞIİÖŞÜ", "cgiiosu")


@dataclass(frozen=True)
class Layout:
    """The form of the lists: with or without white space, and the share of taxpayers in GB."""

    indent: bool
    gb_share: float


# "compact" has all taxpayers in both lists, without white space: 50 % more records in the same
# number of bytes, which is the harder case for a reader.
LAYOUTS = {"published": Layout(True, 0.27), "compact": Layout(False, 1.0)}


@dataclass(frozen=True)
class Alias:
    """A mailbox as published, open or closed."""

    name: str
    created: str
    deleted: str | None = None


@dataclass(frozen=True)
class Taxpayer:
    """A taxpayer of one publisher at one version."""

    identifier: str
    title: str
    type: str
    created: str
    account_type: str | None
    pk: dict[str, list[Alias]]
    gb: dict[str, list[Alias]]


def taxpayer(seed: int, number: int, version: int, layout: Layout) -> Taxpayer:
    """Return a taxpayer; each version changes the title, adds an alias or closes one."""
    dice = random.Random((seed << 80) | (number << 16))  # noqa: S311 - a simulation
    draw = dice.random
    first = FIRST[int(draw() * len(FIRST))]
    second = FIRST[int(draw() * len(FIRST))]
    trade = TRADES[int(draw() * len(TRADES))]
    ending = ENDINGS[int(draw() ** 1.5 * len(ENDINGS))]
    middle = f" {TRADES[int(draw() * len(TRADES))]}" if draw() < 0.3 else ""
    title = f"{first} {second}{middle} {trade} {ending}"
    oddity = draw()
    if oddity < 0.016:
        title = f"{title}  " if oddity < 0.008 else title.replace(" ", "  ", 1)
    elif oddity < 0.0170:
        title = title.replace(" ", " &amp; ", 1)
    elif oddity < 0.0173:
        title = title.replace(" ", "\t", 1)
    # The number is part of the identifier, which makes identifiers unique.
    if draw() < 0.0066:
        identifier = f"{1 + int(draw() * 9)}{number % 10_000_000:07d}{int(draw() * 1000):03d}"
    else:
        identifier = _vkn(f"{int(draw() * 60):02d}{(number * 7_654_321 + seed) % 10_000_000:07d}")
    created = _time(draw())
    account_type = _account_type(draw())
    domain = f"{first}{second}{int(draw() * 100)}.com.tr".translate(_TO_DOMAIN).lower()
    kinds = draw()
    documents = ["Invoice"] if kinds < 0.8635 else ["Invoice", "DespatchAdvice"]
    if kinds >= 0.9985:
        documents = ["DespatchAdvice"] if kinds >= 0.99985 else ["DespatchAdvice", "Invoice"]
    pk = {kind: _aliases(dice, "pk", domain, created) for kind in documents}
    gb = {}
    if draw() < layout.gb_share:
        gb = {kind: _aliases(dice, "gb", domain, created) for kind in documents}
        if draw() < 0.005:
            pk = {}
    for step in range(version):
        title, pk = _modified(dice, step, title, pk)
    type_ = "KAMU" if draw() < 0.0003 else "OZEL"
    return Taxpayer(identifier, title, type_, created, account_type, pk, gb)


def _vkn(nine: str) -> str:
    """Return a VKN: nine digits and their check digit."""
    total = 0
    for place, digit in enumerate(nine):
        moved = (int(digit) + 9 - place) % 10
        if moved:
            total += moved * 2 ** (9 - place) % 9 or 9
    return f"{nine}{-total % 10}"


def _account_type(place: float) -> str | None:
    if place < 0.812:
        return "GIBPORTAL"
    if place < 0.972:
        return "ENTEGRASYON"
    return "OZELENTEGRASYON" if place < 0.999 else None


def _time(place: float) -> str:
    seconds = int(place * 10 * 365 * 86400)
    days, second = divmod(seconds, 86400)
    years, day = divmod(days, 365)
    return (
        f"{2014 + years}-{day // 31 + 1:02d}-{day % 31 % 28 + 1:02d}"
        f"T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    )


def _aliases(dice: random.Random, box: str, domain: str, created: str) -> list[Alias]:
    """Return aliases: 86 % of documents have one; a few have hundreds, most of them closed."""
    draw = dice.random
    name = f"urn:mail:default{box}@{domain}"
    if draw() < 0.02:
        name = ODD_ALIASES[int(draw() * len(ODD_ALIASES))]
    elif draw() < 0.02:
        name = name.upper()
    many = draw()
    if many < 0.865:
        return [Alias(name, created)]
    count = 2 if many < 0.959 else 3 if many < 0.984 else 4 + int(draw() * 16)
    if many > 0.99999:
        count = 1357
    found = [Alias(name, created if draw() < 0.3 else _time(draw()))]
    for nth in range(1, count):
        closed = _time(draw()) if draw() < 0.6 else None
        # A repeated alias is nearly always an earlier, closed registration.
        again = draw() < (0.5 if closed else 0.01)
        other = name if again else f"urn:mail:{box}{nth}@{domain}"
        found.append(Alias(other, _time(draw()), closed))
    if draw() < 0.005:
        found = [Alias(alias.name, alias.created, alias.created) for alias in found]
    return found


def _modified(
    dice: random.Random, step: int, title: str, pk: dict[str, list[Alias]]
) -> tuple[str, dict[str, list[Alias]]]:
    kind = dice.random()
    if kind < 0.4 or not pk:
        return f"{title} {step + 1}. ŞUBE", pk
    document, aliases = next(iter(pk.items()))
    created = max(_time(dice.random()), aliases[0].created)
    domain = aliases[0].name.rpartition("@")[2]
    if kind < 0.8:
        added = Alias(f"urn:mail:pk{step + 1}@{domain}", created)
        return title, {**pk, document: [added, *aliases]}
    closed = [Alias(aliases[0].name, aliases[0].created, created), *aliases[1:]]
    renamed = Alias(f"urn:mail:yenipk{step}@{domain}", created)
    return title, {**pk, document: [renamed, *closed]}
