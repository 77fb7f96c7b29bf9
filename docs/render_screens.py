"""Show home, gallery and a report on a desktop and a phone, light and dark, in one image.

    python docs/render_screens.py        # writes docs/images/screens.png; needs chromium

A phone is a frame of 390 pixels: the window of a browser cannot be that narrow, but media queries
in a frame follow its width.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_diabetes

from parkrr import ParKRegressor

DOCS = Path(__file__).parent
DESKTOP, PHONE, HEIGHT, GAP = 1200, 390, 1000, 16  # pixels
SCALE = 0.5  # of the image
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
# Chromium's names of the preferred colour scheme in headless mode.
SCHEMES = {"light": 1, "dark": 0}


def write_report(folder):
    """The report of a small model, that of inspection.md."""
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = ParKRegressor(random_state=0, progress=False).fit(X[:331], y[:331])
    model.show_report(folder / "report.html")


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


def photograph(folder, scheme, width):
    """The document of frames as an image."""
    path = folder / f"{scheme}.png"
    command = [
        "chromium",
        *FLAGS,
        "--hide-scrollbars",
        f"--force-device-scale-factor={SCALE}",
        f"--window-size={width},{HEIGHT}",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        "--virtual-time-budget=20000",
        f"--screenshot={path}",
        (folder / "frames.html").as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return Image.open(path).convert("RGB")


def stack(images):
    """Images of one size below each other, in 256 colours: 240 kB instead of 600."""
    width, height = images[0].size
    both = Image.new("RGB", (width, height * len(images)))
    for k, image in enumerate(images):
        both.paste(image, (0, k * height))
    return both.quantize(256, dither=Image.Dither.NONE)


def main():
    """Build the site and write the image."""
    documents = ["index.html", "examples.html", "report.html"]
    width = len(documents) * (DESKTOP + PHONE + 2 * GAP)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", name]
        subprocess.run(build, check=True, cwd=DOCS.parent)
        write_report(folder)
        write_frames(folder, documents)
        images = [photograph(folder, scheme, width) for scheme in SCHEMES]
    stack(images).save(DOCS / "images" / "screens.png", optimize=True)


if __name__ == "__main__":
    main()
