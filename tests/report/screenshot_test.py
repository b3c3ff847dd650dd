#!/usr/bin/env python3
"""Opens a page in headless Chromium at phone and desktop width: screenshot_test.py LINERATE
[FOLDER]

Checks that nothing is wider than the screen, that every chart is drawn for its width, that no text
of a chart leaves its picture or covers another, and that the screenshot is not blank. FOLDER keeps
page and screenshots for looking at. Exit 77 (skipped) where no Chromium is installed.
"""
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sample_documents import write_all

PROBE = """<script>
const charts = [...document.querySelectorAll('figure svg')].filter(
    s => !s.classList.contains('key'));
const shown = charts.filter(s => s.childNodes.length > 0);
const outside = [], covered = [];
for (const svg of shown) {
  const frame = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll('text')].map(
      t => [t.textContent, t.getBoundingClientRect()]);
  for (const [text, b] of boxes)
    if (b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1 ||
        b.bottom > frame.bottom + 1)
      outside.push(text);
  for (let i = 0; i < boxes.length; ++i)
    for (let j = i + 1; j < boxes.length; ++j) {
      const [a, b] = [boxes[i][1], boxes[j][1]];
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 &&
          b.top < a.bottom - 3)
        covered.push(boxes[i][0] + ' / ' + boxes[j][0]);
    }
}
// Words of a table that are broken in two: a cell narrower than its longest plain word.
const ruler = document.createElement('span');
ruler.style.cssText = 'position:absolute;visibility:hidden;white-space:nowrap;font-size:14px';
document.body.append(ruler);
const broken = [];
for (const cell of document.querySelectorAll('section > .scroll td'))
  for (const word of cell.textContent.split(/[\s(),=+]+/)) {
    ruler.textContent = word;
    const style = getComputedStyle(cell), room = cell.clientWidth - parseFloat(style.paddingRight);
    if (cell.clientWidth > 0 && ruler.getBoundingClientRect().width > room + 1) broken.push(word);
  }
ruler.remove();
document.body.setAttribute('data-probe', JSON.stringify({
  inner: document.documentElement.clientWidth, scroll: document.documentElement.scrollWidth,
  charts: charts.length, shown: shown.length,
  scaled: shown.filter(
      s => Math.abs(s.viewBox.baseVal.width - s.getBoundingClientRect().width) > 1).length,
  texts: document.querySelectorAll('svg text').length,
  smallest: Math.min(...shown.flatMap(s => [...s.querySelectorAll('text')].map(
      t => parseFloat(getComputedStyle(t).fontSize) * s.getBoundingClientRect().width /
          s.viewBox.baseVal.width))),
  outside, covered, broken}));
</script>"""


def probe(chromium, page, width, folder):
    """The numbers that PROBE writes. An iframe gives the exact width: a headless window is never
    narrower than 500."""
    probed = folder / f"probed-{width}.html"
    inner = folder / "inner.html"
    inner.write_text(page.read_text().replace("</body>", PROBE + "</body>"))
    probed.write_text(
        "<body style='margin:0'><iframe src='inner.html' "
        f"style='width:{width}px;height:900px;border:0'></iframe>"
        "<script>onload = () => { const f = document.querySelector('iframe').contentDocument;"
        "document.body.setAttribute('data-result', f.body.getAttribute('data-probe')); "
        "}</script></body>")
    dom = subprocess.run([*chromium, "--allow-file-access-from-files",
                          "--virtual-time-budget=10000", "--dump-dom", probed.as_uri()],
                         capture_output=True, text=True, timeout=120).stdout
    found = re.search(r'data-result="([^"]*)"', dom)
    if not found:
        sys.exit(f"the page did not load at {width} px: {dom[:300]}")
    return json.loads(html.unescape(found.group(1)))


def check(ok, text):
    print("ok   " if ok else "SHORT", text)
    return 0 if ok else 1


def main():
    linerate = Path(sys.argv[1]).resolve()
    browser = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not browser:
        print("skipped: no Chromium here (apt-get install chromium)")
        return 77
    short = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        documents = write_all(folder)
        page = folder / "report.html"
        subprocess.run([linerate, "report", *documents, "-o", page], check=True)
        text = page.read_text()
        short += check(not re.search(r"(https?:)?//[a-z]", text), "no external address")
        short += check(text.count("<script>") == 1, "one script, and the data that it draws")
        chromium = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                    f"--user-data-dir={scratch}/profile"]
        for width, height in ((390, 844), (1280, 900)):
            seen = probe(chromium, page, width, folder)
            short += check(seen["scroll"] <= seen["inner"] == width,
                           f"{width} px: content is {seen['scroll']} px wide")
            short += check(seen["shown"] == seen["charts"] > 0,
                           f"{width} px: {seen['shown']} of {seen['charts']} pictures drawn")
            short += check(seen["scaled"] == 0,
                           f"{width} px: {seen['scaled']} pictures drawn for another width")
            short += check(seen["texts"] > 50, f"{width} px: {seen['texts']} texts in pictures")
            short += check(seen["smallest"] >= 10,
                           f"{width} px: smallest text {seen['smallest']:.1f} px")
            for what, found in (("texts outside their picture", seen["outside"]),
                                ("texts over one another", seen["covered"]),
                                ("words of tables broken in two", seen["broken"])):
                short += check(not found, f"{width} px: {what}: {found[:5]}")
            shot = folder / f"report-{width}.png"
            subprocess.run([*chromium, f"--window-size={width},{height}", f"--screenshot={shot}",
                            page.as_uri()], capture_output=True, timeout=120)
            size = shot.stat().st_size if shot.exists() else 0
            # a blank one has about 3,000
            short += check(size > 10_000, f"{width} px: screenshot of {size} bytes")
    return 1 if short else 0


sys.exit(main())
