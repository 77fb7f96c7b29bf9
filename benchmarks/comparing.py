"""What a table of errors and seconds says about another method, in a sentence."""

import numpy as np


def compare(results, other, seconds):
    """How often parkrr's error is lower, and its time, beside another method on the same data.

    `results` hold one case for each method of each data set, and `seconds` is the name of the time.
    """
    pairs = [
        (cases["parkrr"], cases[other])
        for cases in results.values()
        if "error" in cases.get("parkrr", {}) and "error" in cases.get(other, {})
    ]
    lower = sum(own["error"] < theirs["error"] for own, theirs in pairs)
    times = np.exp(np.mean([np.log(own[seconds] / theirs[seconds]) for own, theirs in pairs]))
    return (
        f"{other}: parkrr has the lower error on {lower} of {len(pairs)}, and takes {times:.1f} "
        f"times its seconds (geometric mean)."
    )
