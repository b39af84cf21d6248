"""The drawings of outlines on the page of a parcel."""

from shapely import MultiPolygon, box

from hasat.sources.tkgm.pages.parcel import draw_outlines

SMALL, LARGE = box(32.85, 39.9, 32.851, 39.901), box(32.85, 39.9, 32.852, 39.901)


def test_both_outlines_are_drawn_at_one_scale() -> None:
    drawing = draw_outlines(SMALL, LARGE)
    assert drawing is not None
    assert drawing.before is not None
    assert drawing.after is not None
    assert drawing.before.split("L")[1].split(",")[0] != drawing.after.split("L")[1].split(",")[0]
    assert 0 < drawing.height < drawing.width <= 160


def test_an_added_parcel_has_only_an_outline_after() -> None:
    drawing = draw_outlines(None, MultiPolygon([SMALL, box(32.86, 39.9, 32.861, 39.901)]))
    assert drawing is not None
    assert drawing.before is None
    assert drawing.after is not None
    assert drawing.after.count("M") == 2


def test_an_unchanged_outline_is_not_drawn() -> None:
    assert draw_outlines(SMALL, box(32.85, 39.9, 32.851, 39.901)) is None
    assert draw_outlines(None, None) is None
