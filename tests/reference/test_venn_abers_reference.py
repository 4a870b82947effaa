"""Venn-Abers against the package of its inventors."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.stats.maps import fit_venn_abers

with np.errstate():  # importing it silences numpy's warnings for the whole process
    settings = np.geterr()
    package = pytest.importorskip("venn_abers", reason="venn-abers is a development tool")
    np.seterr(**settings)


@pytest.mark.filterwarnings("ignore:All-NaN slice")
@pytest.mark.parametrize("digits", [0, 1, 12])
@pytest.mark.parametrize("rows", [5, 12, 60, 400])
def test_probabilities_agree_with_the_package(rows: int, digits: int) -> None:
    rng = np.random.default_rng(rows + digits)
    for _ in range(10):
        x = np.round(rng.normal(0.0, 2.0, rows), digits)
        y = (rng.random(rows) < 1 / (1 + np.exp(-x))).astype(float)
        if len(np.unique(x)) < 2:
            continue
        asked = np.concatenate([x, rng.normal(0, 4, 100), [x.min() - 1, x.max() + 1]])
        with np.errstate(all="ignore"):  # its slopes divide by zero
            p0, p1, points = package.calc_p0p1(np.stack([-x, x], axis=1), y)
            theirs, _ = package.calc_probs(p0, p1, points, np.stack([-asked, asked], axis=1))
        np.testing.assert_allclose(
            fit_venn_abers(x, y).predict(asked), theirs[:, 1], rtol=0, atol=1e-9
        )
