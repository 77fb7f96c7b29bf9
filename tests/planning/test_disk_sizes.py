"""Cells, centres, tasks and passes of a fit from disk."""

import math
from dataclasses import replace

import pytest

from ondisk import write
from parkrr import scan_parquet
from parkrr.errors import BudgetError, ParameterError
from parkrr.planning.disk_sizes import (
    HEAVIEST,
    MEMORY,
    PROCESS_BYTES,
    SORT_COPIES,
    DiskFitSize,
    choose_disk_sizes,
    choose_region_sizes,
    count_passes,
    estimate_disk_bytes,
    estimate_disk_seconds,
    learn_table,
    stays_on_disk,
)
from parkrr.planning.machine_speed import MachineSpeed
from parkrr.planning.sizes import EVEN, FitSize
from plain import plain

N, WIDTH, TARGETS = 10_000_000, 12, 1
STEADY = MachineSpeed(*[1e-3] * 2, *[1e-9] * 4, product=1e-10, schur=1e-5)


def choose(n_cells=None, n_centers=None, cores=2, max_memory=MEMORY, group_bytes=2**24):
    return choose_disk_sizes(N, WIDTH, TARGETS, n_cells, n_centers, cores, max_memory, group_bytes)


def statistics_bytes(sizes):
    m = sizes.n_centers / sizes.n_cells
    return 8 * sizes.n_cells * m * (m + TARGETS)


def test_statistics_of_a_pass_fit_in_the_memory_of_a_worker():
    sizes = choose(max_memory=3e9)
    assert sizes.n_groups == math.ceil(statistics_bytes(sizes) / sizes.room)
    assert sizes.n_workers * sizes.room + PROCESS_BYTES < 3e9


def test_sizes_that_are_given_stay():
    sizes = choose(n_cells=30, n_centers=6000)
    assert (sizes.n_cells, sizes.n_centers) == (30, 6000)


def test_less_memory_gives_fewer_cells():
    assert choose(max_memory=2e9).n_cells < choose(max_memory=8e9).n_cells


def test_the_number_of_cells_does_not_depend_on_the_cores():
    assert choose(cores=2).n_cells == choose(cores=16).n_cells


def choose_regions(n, n_cells=None, cores=2, limit=MEMORY, largest=2000, most_centers=None):
    return choose_region_sizes(
        n, WIDTH, TARGETS, n_cells, cores, limit, 2**24, largest, most_centers
    )


@pytest.mark.parametrize("n", [10**7, 10**8])
def test_cells_and_centres_of_sorted_rows_grow_with_them(n):
    sizes = choose_regions(n)
    assert (sizes.n_cells, sizes.n_centers) == (n // 4000, n // 10)


def test_a_model_has_no_more_centres_than_memory_can_hold_twice():
    sizes = choose_regions(10**9)
    assert 10**7 < sizes.n_centers < 10**8
    assert sizes.n_centers == 400 * sizes.n_cells
    assert 2 * 8 * (WIDTH + TARGETS) * sizes.n_centers < MEMORY
    assert choose_regions(10**9, limit=32e9).n_centers == 10**8


@pytest.mark.parametrize(("n", "most"), [(10**6, 50_000), (10**7, 50_000), (10**8, 10**6)])
def test_a_bounded_model_has_as_many_centres_as_it_may(n, most):
    assert choose_regions(n, most_centers=most).n_centers == pytest.approx(most, rel=0.01)


def test_statistics_are_those_of_a_bounded_model():
    sizes = choose_disk_sizes(N, WIDTH, TARGETS, None, None, 2, MEMORY, 2**24, most_centers=9000)
    assert sizes.n_centers == 9000


def test_regions_are_never_two():
    counts = [choose_regions(n).n_regions for n in (20_000, 60_000, 100_000, 200_000)]
    assert counts[0] == 1
    assert min(counts[1:]) >= 3


def test_sorted_rows_have_the_cells_of_a_fit_in_memory_up_to_three_million():
    sizes = choose_regions(3_000_000)
    assert (sizes.n_cells, sizes.n_centers) == (1500, 3_000_000)


@pytest.mark.parametrize("limit", [3e9, 4e9, 16e9])
@pytest.mark.parametrize("n", [10**6, 10**7, 10**9])
def test_regions_fit_in_the_memory_of_a_worker(n, limit):
    sizes = choose_regions(n, limit=limit)
    row_bytes = SORT_COPIES * 8 * (2 * WIDTH + TARGETS + 2)
    assert HEAVIEST * row_bytes * n / sizes.n_regions < sizes.room
    assert sizes.n_workers * sizes.room + PROCESS_BYTES < limit


def test_regions_and_cells_do_not_depend_on_the_cores():
    few, many = (choose_regions(10**8, cores=cores) for cores in (1, 64))
    assert replace(few, n_workers=0) == replace(many, n_workers=0)


def test_cells_are_smaller_where_memory_is_short():
    assert choose_regions(10**6, limit=1.5e9).n_cells > choose_regions(10**6).n_cells


def test_without_memory_for_regions_there_are_none():
    assert choose_regions(10**7, limit=8e8) is None


def test_cells_that_are_given_stay():
    assert choose_regions(10**8, n_cells=50_000, limit=8e9).n_cells == 50_000
    short = choose_regions(10**8, n_cells=50_000)  # its model has fewer centres
    assert short.n_cells == 50_000
    assert 2 * 8 * (WIDTH + TARGETS) * short.n_centers < MEMORY
    assert choose_regions(10**6, n_cells=1000).n_centers == 10**6


def test_cells_too_large_for_a_worker_are_not_sorted():
    assert choose_regions(10**6, n_cells=10) is None
    assert choose_regions(10**7, n_cells=10) is None  # a region would be one cell


def test_the_sample_has_room_for_all_centres():
    assert choose(n_cells=1000, n_centers=300_000).n_sample >= 300_000


def test_too_little_memory_is_refused_with_what_would_do():
    with pytest.raises(BudgetError, match=r"max_memory must be at least .*lower n_centers"):
        choose(max_memory=5e8)


def test_the_memory_that_a_refusal_names_is_enough():
    with pytest.raises(BudgetError) as refused:
        choose(n_cells=10, n_centers=30_000, max_memory=1e9)
    least = float(str(refused.value).split()[5])
    assert choose(n_cells=10, n_centers=30_000, max_memory=1.01e9 * least).n_workers >= 1


@pytest.mark.parametrize(("share", "passes"), [(0.5, 1), (1.0, 1), (2.5, 3)])
def test_passes_follow_the_size_of_all_statistics(share, passes):
    sizes = choose()
    assert count_passes(sizes, int(share * sizes.room)) == passes


def test_few_rows_are_loaded_unless_there_is_a_checkpoint(tmp_path):
    write(tmp_path, 400, n_files=1)
    table = scan_parquet(tmp_path, target="y")
    assert not stays_on_disk(table, plain().get_params())
    assert stays_on_disk(table, plain(checkpoint=tmp_path / "job").get_params())
    assert stays_on_disk(table, plain(max_memory=10_000).get_params())


def test_a_table_without_a_target_is_refused(tmp_path):
    write(tmp_path, 40, n_files=1)
    with pytest.raises(ParameterError, match="target must name a column"):
        learn_table(scan_parquet(tmp_path), plain().get_params(), 0, False)


def disk_size(**changes):
    sizes = choose(n_cells=100, n_centers=40_000)
    sample = FitSize(
        n=sizes.n_sample,
        d=WIDTH,
        t=TARGETS,
        n_cells=100,
        n_centers=40_000,
        spread=EVEN,
        float64=False,
        cores=2,
        families=3,
        learns=True,
        chooses=True,
        tries=True,
        keeps=False,
        tuning_seconds=40.0,
    )
    size = DiskFitSize(
        sizes, sample, replace(sample, n=N), N, 200, 2**24, 1e-6, has_categories=False
    )
    return replace(size, **changes)


def test_every_task_writes_the_statistics_of_all_cells():
    size = disk_size()
    assert size.bytes_written == statistics_bytes(size.sizes) * size.sizes.n_slices


def test_categories_take_one_more_reading():
    more = disk_size(has_categories=True).sampling_reads - disk_size().sampling_reads
    assert more == 1


def test_steps_are_those_of_a_fit_from_disk_in_their_order():
    assert list(estimate_disk_seconds(disk_size(), STEADY)) == [
        *("sample search", "metric search", "coarse comparison"),
        *("sample and partition", "pass", "cells", "uncertainty"),
    ]


def test_a_pass_takes_longer_where_rows_are_read_slowly():
    fast, slow = (estimate_disk_seconds(disk_size(row_seconds=s), STEADY) for s in (1e-6, 1e-5))
    sizes = disk_size().sizes
    more = sizes.n_groups * N * 9e-6 / sizes.n_workers
    assert slow["pass"] - fast["pass"] == pytest.approx(more)


def test_larger_row_groups_take_more_memory():
    small, large = (estimate_disk_bytes(disk_size(group_bytes=b)) for b in (2**24, 2**30))
    assert large - small == pytest.approx(disk_size().sizes.n_workers * 2 * (2**30 - 2**24))
