"""Areas as people draw them."""

import pytest

from hasat.errors import UsageError
from hasat.sources.tkgm.density import read_drawn


def test_a_box_or_corners() -> None:
    assert read_drawn("32.84,39.89,32.86,39.91").bounds == (32.84, 39.89, 32.86, 39.91)
    assert read_drawn("32.84,39.89 32.86,39.89 32.86,39.91").area == pytest.approx(0.0002)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ankara",
        "1,2,3",
        "32.86,39.89,32.84",
        "32.84,39.89 32.86,39.91",
        "0,0 1,1 0,1 1,0",
        "1,1 1,1 1,1",
        "nan,39,33,40",
        "32,39,inf,40",
        "0,0,40,40",
        " ".join(["1,1"] * 600),
    ],
)
def test_what_is_no_area_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_drawn(text)
