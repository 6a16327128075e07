"""A real browser, and what it must find on a page: nothing wrong, nothing loaded, all readable."""

import os
import shutil

import pytest

WIDTHS, THEMES = (1280, 390), ("light", "dark")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

OVERFLOW = "() => document.scrollingElement.scrollWidth - innerWidth"

TEXTS = """() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = rgb => {
    const [r, g, b] = rgb.slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const found = numbers(getComputedStyle(e).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || ['STYLE', 'SCRIPT', 'title'].includes(element.tagName)) continue;
    if (!element.checkVisibility() || element.closest('thead')?.offsetWidth === 1) continue;
    const style = getComputedStyle(element), svg = element.closest('svg');
    const a = light(numbers(svg ? style.fill : style.color)), b = light(behind(element));
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    const box = element.getBoundingClientRect();
    found.push({
      text, size: parseFloat(style.fontSize) * scale, label: Boolean(svg),
      contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05),
      left: box.left, right: box.right,
    });
  }
  return found;
}"""

CHARTS = """() => [...document.querySelectorAll('figure > svg')]
.filter(s => s.checkVisibility()).map(s => {
  const frame = s.getBoundingClientRect();
  const boxes = [...s.querySelectorAll('text')].map(t => {
    const b = t.getBoundingClientRect();
    return {text: t.textContent, left: b.left, right: b.right, top: b.top, bottom: b.bottom};
  });
  return {left: frame.left, right: frame.right, top: frame.top, bottom: frame.bottom,
          width: frame.width, height: frame.height, boxes};
})"""


# Not for the session: its event loop would still run in later tests, which start one of their own.
@pytest.fixture(scope="module")
def chromium():
    """A headless Chromium; without one the tests are skipped unless a browser is required."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        say = pytest.fail if os.environ.get("TORCH_HOLDOUT_BROWSER") == "required" else pytest.skip
        say("No Chromium was found on this machine, and the page is tested in a real one.")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


def problems(browser, path, *, width, theme, charts, picture=None):
    """Open a page and list what is wrong with it."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, offline=True
    )
    found, asked = [], []
    try:
        tab = context.new_page()
        tab.on("console", lambda message: found.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: found.append(f"page error: {error}"))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(path.as_uri())
        if asked != [path.as_uri()]:
            found.append(f"requests: {asked[1:]}")
        found += _layout_problems(tab, width, charts)
        tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        found += [f"unfolded: {problem}" for problem in _layout_problems(tab, width, charts)]
        if picture is not None:
            tab.screenshot(path=picture, full_page=True)
    finally:
        context.close()
    return found


def served_problems(browser, url, *, width, theme, script=True, picture=None, headers=None):
    """Open a page that a server sends; list what is wrong, requests to elsewhere included."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, java_script_enabled=script,
        extra_http_headers=headers or {},
    )  # fmt: skip
    origin, found, asked = "/".join(url.split("/")[:3]), [], []
    try:
        tab = context.new_page()
        tab.on("console", lambda message: found.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: found.append(f"page error: {error}"))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(url, wait_until="networkidle")
        found += [f"request: {to}" for to in asked if not to.startswith(f"{origin}/")]
        found += _layout_problems(tab, width, charts=0)
        if picture is not None:
            tab.screenshot(path=picture, full_page=True)
    finally:
        context.close()
    return found


def _layout_problems(tab, width, charts):
    if (over := tab.evaluate(OVERFLOW)) > 0:
        yield f"wider than the window by {over} px"
    texts = tab.evaluate(TEXTS)
    if not texts:
        yield "no text"
    for text in texts:
        if text["contrast"] < 4.5:
            yield f"contrast {text['contrast']:.1f}: {text['text']!r:.60}"
        if text["size"] < (11.5 if text["label"] else 14):
            yield f"{text['size']:.1f} px: {text['text']!r:.60}"
        if text["left"] < -0.5 or text["right"] > width + 0.5:
            yield f"runs out of the window: {text['text']!r:.60}"
    drawn = tab.evaluate(CHARTS)
    if len(drawn) != charts:
        yield f"{len(drawn)} charts instead of {charts}"
    for chart in drawn:
        yield from _chart_problems(chart)


def _chart_problems(chart):
    if min(chart["width"], chart["height"]) < 100:
        yield "a chart has no size"
    boxes = chart["boxes"]
    for i, one in enumerate(boxes):
        inside = (
            one["left"] >= chart["left"] - 1
            and one["right"] <= chart["right"] + 1
            and one["top"] >= chart["top"] - 1
            and one["bottom"] <= chart["bottom"] + 1
        )
        if not inside:
            yield f"a label runs out of its chart: {one['text']!r}"
        for other in boxes[i + 1 :]:
            if _overlap(one, other):
                yield f"labels overlap: {one['text']!r} and {other['text']!r}"


def _overlap(one, other):
    across = min(one["right"], other["right"]) - max(one["left"], other["left"])
    down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
    return across > 1 and down > 4  # a line's box is higher than its letters
