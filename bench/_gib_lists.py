"""Writes taxpayer lists as the Revenue Administration publishes them, of any size and from a seed.

Every taxpayer is a pure function of (seed, number, version): publishers with one seed agree on
every byte, and a step of churn touches only those whom it changes. The shares (aliases a document,
closed aliases, account types, odd spellings) follow the published test list of 2020.
"""

import random
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

Box = Literal["PK", "GB"]

# What six hours change among a million and a half taxpayers.
CHURN_AMONG = 1_500_000
ADDED, MODIFIED, REMOVED = 167, 222, 48

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
    """How lists are written: with white space or without, and the share of taxpayers in GB."""

    indent: bool
    gb_share: float


# "compact" puts everybody into both lists without white space: half as many records again in the
# same number of bytes, which is the harder case for a reader.
LAYOUTS = {"published": Layout(True, 0.27), "compact": Layout(False, 1.0)}


@dataclass(frozen=True)
class Alias:
    """A mail box as published, open or closed."""

    name: str
    created: str
    deleted: str | None = None


@dataclass(frozen=True)
class Taxpayer:
    """A taxpayer as one publisher knows him at one version."""

    identifier: str
    title: str
    type: str
    created: str
    account_type: str | None
    pk: dict[str, list[Alias]]
    gb: dict[str, list[Alias]]


def taxpayer(seed: int, number: int, version: int, layout: Layout) -> Taxpayer:
    """Taxpayer `number`; a higher version has another title, one more alias, or one closed."""
    dice = random.Random((seed << 80) | (number << 16))
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
    # The number is part of the identifier, so none occurs twice whatever the dice say.
    if draw() < 0.0066:
        identifier = f"{1 + int(draw() * 9)}{number % 10_000_000:07d}{int(draw() * 1000):03d}"
    else:
        identifier = f"{int(draw() * 600):03d}{(number * 7_654_321 + seed) % 10_000_000:07d}"
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
    """Eighty-six of a hundred documents have one alias; a few have hundreds, most closed."""
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
        # An alias that is listed again is nearly always an earlier life of it.
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
    created = _time(dice.random())
    document, aliases = next(iter(pk.items()))
    if kind < 0.8:
        added = Alias(f"urn:mail:pk{step + 1}@{created[:4]}.com.tr", created)
        return title, {**pk, document: [added, *aliases]}
    closed = [Alias(aliases[0].name, aliases[0].created, created), *aliases[1:]]
    renamed = Alias(f"{aliases[0].name}.yeni{step}", created)
    return title, {**pk, document: [renamed, *closed]}


class Publisher:
    """Who is on the lists now; `step` lets six hours pass, `write` publishes."""

    def __init__(self, taxpayers: int, seed: int = 1, layout: Layout = LAYOUTS["published"]):
        self.seed = seed
        self.layout = layout
        self.numbers = list(range(taxpayers))
        self.versions: dict[int, int] = {}
        self._next = taxpayers
        self._dice = random.Random(seed)

    def step(self, scale: float | None = None) -> dict[str, int]:
        """Add, change and remove taxpayers: the usual share, or `scale` times the usual numbers."""
        factor = len(self.numbers) / CHURN_AMONG if scale is None else scale
        counts = {
            name: max(1, round(number * factor))
            for name, number in (("added", ADDED), ("modified", MODIFIED), ("removed", REMOVED))
        }
        touched = self._dice.sample(
            range(len(self.numbers)), counts["modified"] + counts["removed"]
        )
        for place in touched[: counts["modified"]]:
            number = self.numbers[place]
            self.versions[number] = self.versions.get(number, 0) + 1
        for place in sorted(touched[counts["modified"] :], reverse=True):
            del self.numbers[place]
        self.numbers.extend(range(self._next, self._next + counts["added"]))
        self._next += counts["added"]
        return counts

    def taxpayers(self, shuffle: int | None = None) -> Iterator[Taxpayer]:
        """Everybody now listed, in the order of publication or in one of the seed `shuffle`."""
        numbers = self.numbers
        if shuffle is not None:
            numbers = random.Random(shuffle).sample(numbers, len(numbers))
        for number in numbers:
            yield taxpayer(self.seed, number, self.versions.get(number, 0), self.layout)

    def xml(self, box: Box, shuffle: int | None = None) -> Iterator[bytes]:
        """One list, a few hundred records at a time."""
        render = _indented if self.layout.indent else _compact
        line = "\n" if self.layout.indent else ""
        yield f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<UserList>{line}'.encode()
        everybody = self.taxpayers(shuffle)
        while some := list(islice(everybody, 500)):
            yield "".join(
                render(one, documents)
                for one in some
                if (documents := one.pk if box == "PK" else one.gb)
            ).encode()
        yield b"</UserList>\n"

    def write_list(self, path: Path, box: Box, shuffle: int | None = None) -> None:
        """One list as a ZIP whose sizes stand after the data, as the publisher writes them."""
        with (
            path.open("wb") as file,
            zipfile.ZipFile(cast(BinaryIO, _Unseekable(file)), "w") as archive,
        ):
            entry = zipfile.ZipInfo(f"newUser{box.title()}List.xml", (2026, 2, 19, 3, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as out:
                for block in self.xml(box, shuffle):
                    out.write(block)

    def write(self, folder: Path, shuffle: int | None = None) -> tuple[Path, Path]:
        """Both lists, each written by a process of its own."""
        paths = folder / "newUserPkListxml.zip", folder / "newUserGbListxml.zip"
        boxes: tuple[Box, Box] = ("PK", "GB")
        with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
            writing = [
                pool.submit(self.write_list, path, box, shuffle)
                for path, box in zip(paths, boxes, strict=True)
            ]
            for task in writing:
                task.result()
        return paths


class _Unseekable:
    """A file that can only be written on, which makes zipfile write data descriptors."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def _indented(one: Taxpayer, documents: dict[str, list[Alias]]) -> str:
    account = f"        <AccountType>{one.account_type}</AccountType>\n" if one.account_type else ""
    return (
        f"    <User>\n        <Identifier>{one.identifier}</Identifier>\n"
        f"        <Title>{one.title}</Title>\n        <Type>{one.type}</Type>\n"
        f"        <FirstCreationTime>{one.created}</FirstCreationTime>\n{account}"
        "        <Documents>\n"
        + "".join(
            f'            <Document type="{kind}">\n'
            + "".join(
                f"                <Alias>\n                    <Name>{alias.name}</Name>\n"
                f"                    <CreationTime>{alias.created}</CreationTime>\n"
                + (
                    f"                    <DeletionTime>{alias.deleted}</DeletionTime>\n"
                    if alias.deleted
                    else ""
                )
                + "                </Alias>\n"
                for alias in aliases
            )
            + "            </Document>\n"
            for kind, aliases in documents.items()
        )
        + "        </Documents>\n    </User>\n"
    )


def _compact(one: Taxpayer, documents: dict[str, list[Alias]]) -> str:
    return "".join(map(str.strip, _indented(one, documents).splitlines()))
