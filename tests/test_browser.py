"""The look at pages finds what is wrong with them."""

import re

import pytest

PAGE = """<!DOCTYPE html><html><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"></head><body>{}</body></html>
"""
PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"  # 1 x 1


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("<script>console.error('out of order')</script>", "out of order"),
        ("<script>nowhere.at.all</script>", "nowhere is not defined"),
        ("<script src='none.js'></script>", "none.js is broken"),
        ("<img src='none.png'>", "none.png is broken"),
        ("<img src='data:image/png;base64,AAAA'>", "data:image/png;base64,AAAA"),
        (f"<h1>{'w' * 30}</h1>", r"at 385 pixels: h1 to \d+: www.*pixels wide"),
        ("<div style='width: 400px'>wide</div>", "at 385 pixels: div to 408: wide"),
    ],
)
def test_what_is_wrong_with_a_page_is_found(tmp_path, look, body, complaint):
    page = tmp_path / "page.html"
    page.write_text(PAGE.format(body))
    with pytest.raises(AssertionError) as caught:
        look(page)
    assert re.search(complaint, str(caught.value))


def test_a_page_in_order_passes(tmp_path, look):
    page = tmp_path / "page.html"
    scrolls = f"<div style='overflow-x: auto'><pre>{'w' * 300}</pre></div>"
    page.write_text(PAGE.format(f"<p>{'words ' * 100}</p>{scrolls}<img src='{PIXEL}'>"))
    look(page)
