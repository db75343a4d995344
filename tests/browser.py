"""Pages as a browser shows them: in headless Chromium, on a wide screen and on a telephone's."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
OPTIONS += ("--allow-file-access-from-files", "--hide-scrollbars", "--dump-dom")
WIDTHS = (1200, 385)  # of screens, in pixels
# What a page begins with, so that its errors are noted from the start and it finds its own files.
_WATCH = """<base href="{}/"><script>{
  window.errors = [];
  const note = (...said) => errors.push(said.join(" "));
  const name = (e) => e.message || `${e.target.src || e.target.href} is broken`;
  addEventListener("error", (e) => note(name(e)), true);
  addEventListener("unhandledrejection", (e) => note(e.reason));
  console.error = note;
  console.assert = (right, ...said) => right || note(...said);
}</script>"""
# Lists what reaches beyond the right edge, except inside of a box that scrolls by itself or that is
# fixed beside the screen until a button calls it; and pictures without pixels.
_LOOK = """<script>
onload = () => {
  const found = [...document.querySelectorAll("iframe")].map((frame) => {
    const own = frame.contentWindow, page = frame.contentDocument, faults = [...own.errors];
    const apart = (e) => {
      if (!e || e === page.body || e === page.documentElement) return false;
      const style = own.getComputedStyle(e);
      return style.overflowX !== "visible" || style.position === "fixed" || apart(e.parentElement);
    };
    for (const image of page.images)
      if (!(image.complete && image.naturalWidth))
        faults.push((image.getAttribute("src") || "").slice(0, 100));
    for (const e of page.body.querySelectorAll("*")) {
      if (apart(e.parentElement) || own.getComputedStyle(e).position === "fixed") continue;
      const box = e.getBoundingClientRect(), inner = apart(e) ? 0 : box.left + e.scrollWidth;
      const right = Math.round(Math.max(box.right, inner));
      if (box.width && right > frame.width * 1 + 1)
        faults.push(`${e.tagName.toLowerCase()} to ${right}: ${e.textContent.trim().slice(0, 60)}`);
    }
    const width = page.documentElement.scrollWidth;
    if (width > frame.width) faults.push(`${width} pixels wide`);
    if (!/width=device-width/.test(page.querySelector("meta[name=viewport]")?.content))
      faults.push("telephones show it on a wide screen");
    return faults;
  });
  document.querySelector("pre").textContent = JSON.stringify(found);
};
</script><pre></pre>"""


def program() -> str | None:
    """Chromium's path, None where it is not installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def faults_of(page: Path, folder: Path) -> list[str]:
    """What is wrong with a page at each width. The folder takes Chromium's files."""
    copy, frames = folder / "page.html", folder / "frames.html"
    watch = "<head>" + _WATCH.replace("{}", page.resolve().parent.as_uri())
    copy.write_text(page.read_text(encoding="utf-8").replace("<head>", watch, 1), encoding="utf-8")
    shown = [f'<iframe src="page.html" width="{x}" height="800"></iframe>' for x in WIDTHS]
    frames.write_text(f"<body><style>iframe {{ border: 0 }}</style>{''.join(shown)}{_LOOK}")
    command = [str(program()), *OPTIONS, f"--user-data-dir={folder}", frames.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(html.unescape(re.findall(r"<pre>(.*)</pre>", done.stdout, re.S)[0]))
    pairs = zip(WIDTHS, found, strict=True)
    return [f"at {x} pixels: {'; '.join(faults)}" for x, faults in pairs if faults]
