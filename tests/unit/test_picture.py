"""The picture is well-formed SVG that shows every node, step and mark it was given, inside its frame."""

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from localcloud.picture import KINDS, LEFT, RIGHT, WIDTH, Lane, Loss, Mark, Segment, draw

SVG = "{http://www.w3.org/2000/svg}"
LANES = [
    Lane(
        "i-0aaa", "on-demand", [Segment(0, 8, "boot"), Segment(8, 12, "selfcheck"), Segment(12, 60, "train")]
    ),
    Lane("i-0bbb", "spot", [Segment(0, 8, "boot"), Segment(8, 30, "train"), Segment(30, 33, "notice")]),
]
LOSSES = [Loss(12 + i, i + 1, 1.5 / (i + 1), 1) for i in range(10)] + [
    Loss(40 + i, i + 11, 0.1, 2) for i in range(5)
]


def texts(svg: str) -> str:
    return " | ".join(element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text"))


def test_nodes_marks_and_last_steps_are_named():
    words = texts(draw("a run", LOSSES, LANES, [Mark(30, "spot notice")]))
    for expected in ("a run", "i-0aaa", "i-0bbb", "spot notice", "step 10", "step 15"):
        assert expected in words


def test_the_curve_breaks_between_generations():
    root = ET.fromstring(draw("a run", LOSSES, LANES))
    assert len(list(root.iter(f"{SVG}polyline"))) == 2


def test_every_kind_of_segment_has_a_legend():
    words = texts(draw("a run", [], LANES))
    for _, legend in KINDS.values():
        assert legend in words


def test_text_from_outside_cannot_break_the_picture():
    assert "<b>&" in texts(draw("<b>&", [], LANES))


@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0.001, 1e4)), min_size=1, max_size=30))
def test_everything_is_drawn_inside_the_frame(points):
    losses = [Loss(time, step, value, 1) for step, (time, value) in enumerate(sorted(points))]
    root = ET.fromstring(draw("a run", losses, LANES))
    for line in root.iter(f"{SVG}polyline"):
        for pair in line.attrib["points"].split():
            x, y = map(float, pair.split(","))
            assert LEFT - 0.1 <= x <= WIDTH - RIGHT + 0.1
            assert 0 <= y <= float(root.attrib["height"])
