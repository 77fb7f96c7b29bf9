"""What the steps of a fit from disk take: seconds, bytes in memory, bytes read and written."""

from dataclasses import dataclass, replace

from parkrr.data import BLOCK_BYTES, count_sampled_groups
from parkrr.planning.costs import FitSize, choosing_bytes, coarse_seconds, seconds_of
from parkrr.planning.disk_sizes import (
    GROUP_COPIES,
    PROCESS_BYTES,
    SAMPLE_COPIES,
    DiskPlan,
)
from parkrr.planning.machine_speed import MachineSpeed
from parkrr.uncertainty import FOLDS, SCALE_CENTERS

COPIES = 6  # of a block of rows that are there at once; a promise counts with more
CHOOSING = ("sample search", "metric search", "blend trial")  # steps that see a sample
WRITTEN, READ = 5e8, 2e9  # bytes a second of statistics, through the file cache
SOLVE = 6.0  # products of a cell from its statistics, over m^3


@dataclass(frozen=True)
class DiskFitSize:
    """A fit from disk in numbers.

    Parameters
    ----------
    sizes
        Cells, centres, tasks and passes.
    sample
        What choices see, as a fit in memory.
    n, groups
        Rows, and row groups.
    group_bytes, bytes
        Of the largest row group, decoded, and of all rows, as they are read.
    row_seconds
        To read a row and make numbers of it, on one core.
    counted
        Whether there are words, which take one more reading to count.
    """

    sizes: DiskPlan
    sample: FitSize
    n: int
    groups: int
    group_bytes: int
    bytes: float
    row_seconds: float
    counted: bool

    @property
    def centers(self) -> float:
        """Of a cell."""
        return self.sizes.n_centers / self.sizes.n_cells

    @property
    def drawn(self) -> int:
        """Rows of the sample."""
        return min(self.n, self.sizes.n_sample + self.sizes.n_left_out)

    @property
    def looked_at(self) -> float:
        """Share of the rows that are read to draw the sample."""
        return min(1.0, count_sampled_groups(self.drawn, self.groups, self.n) / self.groups)

    @property
    def statistics(self) -> float:
        """Bytes of statistics of all cells."""
        return 8.0 * self.sizes.n_centers * (self.centers + self.sample.t)

    @property
    def readings(self) -> float:
        """How often all rows are read."""
        return 2 * self.looked_at + self.counted + self.sizes.n_groups


def disk_seconds(shape: DiskFitSize, pace: MachineSpeed) -> dict[str, float]:
    """Of every step."""
    sizes, m, workers = shape.sizes, shape.centers, shape.sizes.n_workers
    chosen = seconds_of(shape.sample, pace)
    found: dict[str, float] = {step: chosen[step] for step in CHOOSING if step in chosen}
    look = (2 * shape.looked_at + shape.counted) * shape.n * shape.row_seconds
    found["sample and partition"] = look / workers + chosen["partition"]
    products = m * (pace.short_value + m * pace.product)
    row = shape.row_seconds + sizes.n_cells * pace.distance + products / sizes.n_groups
    found["pass"] = sizes.n_groups * shape.n * row / workers + disk_written(shape) / WRITTEN
    solves = sizes.n_cells * (m**2 * pace.value + SOLVE * m**3 * pace.product) / workers
    found["cells"] = solves + disk_written(shape) / READ
    h = sizes.n_left_out
    scales = (FOLDS + 1) * coarse_seconds(shape.sample, pace, SCALE_CENTERS, h)
    found["uncertainty"] = scales + h * (pace.schur + 3 * m * pace.short_value) / workers
    return found


def disk_bytes(shape: DiskFitSize) -> float:
    """Most that the process holds, itself included."""
    sizes, width = shape.sizes, shape.sample.d + shape.sample.t
    sample = SAMPLE_COPIES / 2 * 8.0 * shape.drawn * width
    own = COPIES * BLOCK_BYTES + GROUP_COPIES * shape.group_bytes
    passing = sample + sizes.n_workers * (own + shape.statistics / sizes.n_groups)
    choosing = sample + choosing_bytes(replace(shape.sample, n=shape.drawn))
    return PROCESS_BYTES + max(passing, choosing)


def disk_written(shape: DiskFitSize) -> float:
    """Bytes of statistics that tasks leave for each other."""
    return shape.statistics * shape.sizes.n_slices
