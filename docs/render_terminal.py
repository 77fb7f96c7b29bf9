"""Show commands in a terminal, as an image and as an animation.

    python docs/render_terminal.py    # writes inspect.png and progress.gif; needs tmux

The commands run in a real terminal, that of tmux. Its screen is read twice a second and drawn in
matplotlib's monospaced font.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI as THEME
from rich.text import Text
from sklearn.datasets import make_friedman1
from sklearn.model_selection import train_test_split

from parkrr import ParKRegressor

IMAGES = Path(__file__).parent / "images"
SESSION, WIDTH = "parkrr-terminal", 96  # characters
SIZE, LINE, MARGIN = 13, 17, 12  # pixels
PERIOD, LAST, LONGEST = 0.5, 4.0, 300.0  # seconds of a frame, of the last, of a command
FONTS = Path(matplotlib.get_data_path(), "fonts", "ttf")
PLAIN = ImageFont.truetype(str(FONTS / "DejaVuSansMono.ttf"), SIZE)
BOLD = ImageFont.truetype(str(FONTS / "DejaVuSansMono-Bold.ttf"), SIZE)


def write_model(folder):
    """The model of docs/getting_started.md."""
    X, y = make_friedman1(n_samples=20_000, noise=1.0, random_state=0)
    X, _, y, _ = train_test_split(X, y, random_state=0)
    ParKRegressor(random_state=0, progress=False).fit(X, y).save(folder / "friedman.park")


def write_trips(folder):
    """Made-up taxi rides."""
    rng = np.random.default_rng(0)
    km, hour = rng.gamma(2.0, 2.0, 6000), rng.integers(0, 24, 6000)
    minutes = km * (2 + np.sin(hour / 4)) + 3 + rng.normal(size=6000)
    columns = {"km": km, "hour": hour, "minutes": minutes}
    pq.write_table(pa.table(columns), folder / "trips.parquet")


def tmux(*arguments):
    """Run a command of tmux, and return what it prints."""
    return subprocess.run(["tmux", *arguments], check=True, capture_output=True, text=True).stdout


def watch(command, folder, height):
    """The screens of a terminal that runs a command, two a second; the last one when it is done."""
    over = folder / "over"
    over.unlink(missing_ok=True)
    path = f"PATH={Path(sys.executable).parent}:$PATH"
    shown = f"{path}; printf '$ %s\\n' '{command}'; {command}; touch over; sleep 60"
    size = ("-x", str(WIDTH), "-y", str(height))
    tmux("new-session", "-d", "-s", SESSION, *size, "-c", str(folder), "bash", "-c", shown)
    screens, end = [], time.monotonic() + LONGEST
    try:
        while not over.exists() and time.monotonic() < end:
            time.sleep(PERIOD)
            screens.append(tmux("capture-pane", "-e", "-p", "-t", SESSION))
    finally:
        tmux("kill-session", "-t", SESSION)
    return screens


def draw(screen, height):
    """A screen as an image, with its colours and bold type."""
    character = PLAIN.getlength("m")
    size = (round(WIDTH * character) + 2 * MARGIN, height * LINE + 2 * MARGIN)
    image = Image.new("RGB", size, tuple(THEME.background_color))
    pen, console = ImageDraw.Draw(image), Console(width=WIDTH, color_system="truecolor")
    for row, line in enumerate(screen.splitlines()[:height]):
        column = 0
        for segment in console.render(Text.from_ansi(line, end="")):
            colour, font = THEME.foreground_color, PLAIN
            if segment.style is not None:
                font = BOLD if segment.style.bold else PLAIN
                if segment.style.color is not None:
                    colour = segment.style.color.get_truecolor(THEME)
            place = (MARGIN + column * character, MARGIN + row * LINE)
            pen.text(place, segment.text, fill=tuple(colour), font=font)
            column += len(segment.text)
    return image


def main():
    """Write both images."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder)
        write_trips(folder)
        last = watch("parkrr inspect friedman.park", folder, 30)[-1].rstrip()
        fit = "parkrr fit trips.parquet --target minutes -o minutes.park --no-report"
        screens = watch(fit, folder, 30)
    height = last.count("\n") + 1
    draw(last, height).save(IMAGES / "inspect.png", optimize=True)
    height = screens[-1].rstrip().count("\n") + 1
    frames = [draw(screen, height).quantize(16) for screen in screens]
    seconds = [PERIOD] * (len(frames) - 1) + [LAST]
    frames[0].save(
        IMAGES / "progress.gif",
        save_all=True,
        append_images=frames[1:],
        duration=[round(1000 * second) for second in seconds],
        loop=0,
        optimize=True,
    )


if __name__ == "__main__":
    main()
