"""Whatever is "auto", chosen step by step; every step records what it compared.

1. Sample search (:mod:`.sample_search`): a lengthscale and a penalty for each kernel family, from a
   sample of the rows and few centres.
2. Metric search (:mod:`.metric_search`): from there feature maps are learned at the density of the
   cells (:mod:`.metric_descent`) and compared on small cells (:mod:`.cell_comparison`). Of more
   than 100 features those that matter are found first (:mod:`.column_screening`).
3. Coarse comparison (:mod:`.coarse_comparison`): some cells show whether a coarse level below
   them helps.

Start at :func:`tune`.
"""

from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np
import torch

from parkrr.data import FEW_ROWS, ArraySource, Holdout, canonical_order, merge_copies
from parkrr.kernels import FeatureMap, add_normal_scores
from parkrr.park import METRIC_ROWS, FitSettings, make_feature_map, scale_target
from parkrr.runtime import ChoiceProgress
from parkrr.solvers import PENALTIES
from parkrr.tuning.coarse_comparison import choose_levels
from parkrr.tuning.log import METRIC_PART, Candidate, OpenChoices, TuningLog
from parkrr.tuning.metric_search import EFFORTS, Effort, MetricSearch
from parkrr.tuning.sample_search import SAMPLE_CENTERS, SAMPLE_ROWS, SampleSearch

SCORED_FEATURES = 100  # scores double the features; with more than this they are not tried


def tune(
    settings: FitSettings,
    choices: OpenChoices,
    rows: ArraySource,
    seconds: float,
    progress: ChoiceProgress,
    holdout: Holdout | None = None,
    effort: Effort = EFFORTS["balanced"],
) -> tuple[FitSettings, TuningLog]:
    """The settings with every choice made on these rows, and what was compared.

    Parameters
    ----------
    settings
        Settings of the fit; those left open hold something to start from.
    choices
        What is left open.
    rows
        Raw rows.
    seconds
        That metric descents may take on a machine of two cores. Their steps are counted from it,
        so that the same rows and the same seed give the same choices on any machine.
    progress
        Gets whatever is compared. Once it is stopped, what is best so far is compared on cells,
        and nothing more is searched for, but a coarse level within a time budget.
    holdout
        Which rows are validation rows; None draws them at random.
    effort
        How much is searched at most.
    """
    log = TuningLog(progress=progress)
    seeds = np.random.SeedSequence([settings.seed, 1]).generate_state(3).tolist()
    # Few rows are left out in turn: with all their copies, or each would predict itself.
    few = rows.n_rows < FEW_ROWS and holdout is None
    rows = merge_copies(rows) if few else rows
    order = canonical_order(rows)
    rows = ArraySource(*rows.block(order))
    holdout = holdout and holdout.take(order)
    rows, _, _ = scale_target(rows, settings.fit_intercept, settings.dtype)
    log.variance = max(float(rows.squared_error()) / rows.total_weight, 1e-300)

    candidates = search_sample(settings, choices, rows, seeds, log, holdout)
    log.finish_step("sample search")
    best, dtype = candidates[0], settings.dtype
    if not few or choices.learn_metric:  # else the sample was all rows
        search = MetricSearch(
            settings, choices, rows, candidates, seeds[2], log, seconds, holdout, effort
        )
        best, dtype = search.run()
    log.finish_step("metric search")
    kernel, metric, penalty = best.kernel, best.metric, best.penalty
    settings = replace(settings, kernel=kernel, metric=metric, penalty=penalty, dtype=dtype)
    # Sizes of cells leave time for a comparison in a time budget.
    coarse = choices.coarse and not progress.is_ended_by_user
    settings = choose_levels(settings, rows, choices.blend, coarse, log, holdout)
    log.note_stop("after metric descent", best.error)
    progress.report("chosen", f"{kernel!r}, {best.map_name}", progress.best_error, 1.0)
    log.finish_step("coarse comparison")
    return settings, log


def search_sample(
    settings: FitSettings,
    choices: OpenChoices,
    rows: ArraySource,
    seeds: list[int],
    log: TuningLog,
    holdout: Holdout | None = None,
) -> list[Candidate]:
    """Each kernel family behind each map to start from, the least error first."""
    order = np.random.default_rng(seeds[0]).permutation(rows.n_rows)[:SAMPLE_ROWS]
    index = torch.from_numpy(order).to(rows.X.device)
    few = rows.n_rows < FEW_ROWS and holdout is None
    cut = 0 if few else len(index) // 4
    train, validation = index[cut:], index[:cut]
    if holdout is not None:
        validates = holdout.is_validation[index]
        train, validation = index[~validates], index[validates]
    given = torch.tensor([settings.penalty], dtype=torch.float64)
    search = SampleSearch(
        train=ArraySource(*rows.block(train)),
        validation=None if few else ArraySource(*rows.block(validation)),
        n_centers=FEW_ROWS if few else SAMPLE_CENTERS,
        dtype=settings.dtype,
        penalties=PENALTIES if choices.penalty else given,
    )
    maps = first_maps(choices, rows, seeds[1])
    pairs = [(kernel, *named) for kernel in choices.families for named in maps]
    evaluate = partial(search.evaluate, search=choices.lengthscale)
    numbered = {}
    for number, candidate in settings.engine.run(lambda pair: evaluate(*pair), pairs):
        numbered[number] = candidate
        share = METRIC_PART[0] * len(numbered) / len(pairs)
        log.report("sample search", candidate, candidate.error, share)
        if log.progress.is_over:
            log.note_stop("sample search", candidate.error)
            break
    candidates = [numbered[number] for number in sorted(numbered)]
    for candidate in candidates:
        log.note_candidate("sample search", candidate)
    if choices.penalty:  # lambda n stays the same as rows are added
        share = search.train.total_weight / rows.total_weight
        candidates = [each._replace(penalty=each.penalty * share) for each in candidates]
    return sorted(candidates, key=attrgetter("error"))


def first_maps(choices: OpenChoices, rows: ArraySource, seed: int) -> list[tuple[FeatureMap, str]]:
    """The feature maps to start from, with their names."""
    if isinstance(choices.metric, FeatureMap):
        return [(choices.metric, "given")]
    name = "standard" if choices.metric in ("learned", "auto") else choices.metric
    first = make_feature_map(name, choices.families[0], rows, seed, choices.bounded)
    if not choices.learn_metric or rows.X.shape[1] > SCORED_FEATURES:
        return [(first, name)]
    return [(first, name), (add_normal_scores(first, rows.sample(METRIC_ROWS, seed).X), "scores")]
