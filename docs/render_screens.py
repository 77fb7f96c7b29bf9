"""Show home, gallery and a report on a desktop and a phone, light and dark, in one image.

    python docs/render_screens.py    # writes screens.png and report.png; needs chromium

A phone is a frame of 390 pixels: the window of a browser cannot be that narrow, but media queries
in a frame follow its width.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

from parkrr import ParKRegressor

IMAGES = Path(__file__).parent / "images"
DESKTOP, PHONE, HEIGHT, GAP = 1200, 390, 1000, 16  # pixels
SCALE = 0.5  # of the image
REPORT = (840, 1180)  # pixels of the top of the report
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
# Chromium's names of the preferred colour scheme in headless mode.
SCHEMES = {"light": 1, "dark": 0}


def write_report(folder):
    """The report of the model of docs/getting_started.md."""
    X, y = make_friedman1(n_samples=20_000, noise=1.0, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    model = ParKRegressor(random_state=0, progress=False).fit(X_train, y_train)
    model.show_report(folder / "report.html", X_test, y_test)


def write_frames(folder, documents):
    """An HTML document with each document in a frame of a desktop and in one of a phone."""
    frames = [
        f'<iframe src="{document}" style="width:{width}px;height:{HEIGHT}px;border:0;'
        f'margin-right:{GAP}px"></iframe>'
        for document in documents
        for width in (DESKTOP, PHONE)
    ]
    style = "margin:0;background:#888;white-space:nowrap;font-size:0"
    (folder / "frames.html").write_text(f'<body style="{style}">{"".join(frames)}</body>')


def photograph(document, scheme, width, height, scale):
    """The top of a document as an image."""
    path = document.with_suffix(".png")
    command = [
        "chromium",
        *FLAGS,
        "--hide-scrollbars",
        f"--force-device-scale-factor={scale}",
        f"--window-size={width},{height}",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        "--virtual-time-budget=20000",
        f"--screenshot={path}",
        document.as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return Image.open(path).convert("RGB")


def stack(images):
    """Images of one size below each other, in 256 colours: 240 kB instead of 600."""
    width, height = images[0].size
    both = Image.new("RGB", (width, height * len(images)))
    for k, image in enumerate(images):
        both.paste(image, (0, k * height))
    # Median cuts spend all colours on the background, and turn green markers blue.
    return both.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


def main():
    """Build the site and write both images."""
    documents = ["index.html", "examples.html", "report.html"]
    width = len(documents) * (DESKTOP + PHONE + 2 * GAP)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", name]
        subprocess.run(build, check=True, cwd=IMAGES.parents[1])
        write_report(folder)
        write_frames(folder, documents)
        frames = folder / "frames.html"
        images = [photograph(frames, scheme, width, HEIGHT, SCALE) for scheme in SCHEMES]
        report = photograph(folder / "report.html", "light", *REPORT, 1)
    stack(images).save(IMAGES / "screens.png", optimize=True)
    report.quantize(64, dither=Image.Dither.NONE).save(IMAGES / "report.png", optimize=True)


if __name__ == "__main__":
    main()
