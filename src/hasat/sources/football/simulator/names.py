"""Names of clubs that exist nowhere: a town and what clubs are called there."""

# fmt: off
_TOWNS = (
    "Adana", "Ağrı", "Amasya", "Artvin", "Balıkesir", "Bilecik", "Bolu", "Çanakkale", "Çorum",
    "Denizli", "Diyarbakır", "Düzce", "Edirne", "Erzincan", "Eskişehir", "Gümüşhane", "Hatay",
    "Iğdır", "Isparta", "İzmir", "Karabük", "Kars", "Kırşehir", "Konya", "Kütahya", "Mardin",
    "Muğla", "Niğde", "Ordu", "Sakarya", "Samsun", "Sinop", "Şırnak", "Tokat", "Uşak", "Van",
)
_KINDS = ("Yıldızı", "Irmak", "Demir", "İdman", "Güneşi", "Gücü", "Ovası", "Işık", "Kale", "Çınar")
# fmt: on


def club(team: int) -> str:
    """The name of a club by its number: a thousand numbers a league."""
    league, place = divmod(team, 1000)
    town = _TOWNS[(place * 7 + league * 11) % len(_TOWNS)]
    return f"{town} {_KINDS[(place * 3 + league) % len(_KINDS)]}"
