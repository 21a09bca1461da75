"""Products of small matrices, for compiled functions.

With small matrices a call of BLAS takes longer to begin than to multiply.
Here the sums of a tile stay in registers, see `sklode.engine.compiling.set_tile`. With
plain loops, of one row or of four at once, whole fits take 1.4 to 1.7 times as long,
and a step of the paper's spirals 2.3 times.

Matrices are one-dimensional arrays, row after row.

Tested in tests/engine/test_against_torch.py.
"""

from __future__ import annotations

import numpy as np

from sklode.engine.compiling import apart, inner, set_tile


@inner
def _multiply(x, n_rows, to_row, to_next, w, n_in, n_out, out):
    """Set out to x W, in tiles; some last columns are computed twice."""
    apart()
    lanes = 8 if n_out >= 8 else (4 if n_out >= 4 else 1)
    n_vectors = (n_out + lanes - 1) // lanes
    # the last vector begins early enough to end with the row: it sets columns of the
    # one before to the same sums again, which spares a loop over single columns
    last, k = n_out - lanes, 0
    while k < n_vectors:
        n = 1
        if lanes == 8:
            # four are two and two, not three and one: with few sums side by side each
            # addition waits for the one before
            left = n_vectors - k
            n = 2 if left == 2 or left == 4 else min(left, 3)
        columns = (
            min(k * lanes, last),
            min((k + 1) * lanes, last),
            min((k + 2) * lanes, last),
        )
        # numbers of tiles: of one row 0, 2, and 4, 5, 6 by vectors; of four rows those
        # that follow, 1, 3, and 7, 8, 9
        low = 3 + n if lanes == 8 else (2 if lanes == 4 else 0)
        tall = low + (3 if lanes == 8 else 1)
        r = 0
        while r < n_rows:
            is_whole = r + 4 <= n_rows
            which = tall if is_whole else low
            x_at, out_at = r * to_row, r * n_out
            set_tile(
                which, x, x_at, to_row, to_next, w, out, out_at, n_out, n_in, columns
            )
            r += 4 if is_whole else 1
        k += n


@inner
def product(x, w, n_out, bias, out):
    """Set out to x W, rows of ``n_out``, plus a bias if it is not empty."""
    apart()
    n_in, one = w.size // n_out, np.int64(1)
    _multiply(x, out.size // n_out, n_in, one, w, n_in, n_out, out)
    for i in range(bias.size):
        out[i] += bias[i]


@inner
def add_outer(left, right, n_left, n_right, total, total_bias, scratch):
    """Add left^T right, summed over their rows, and to a bias the rows of left.

    ``scratch`` holds as much as total. The bias may be empty.
    """
    apart()
    n_rows, one = left.size // n_left, np.int64(1)
    # entry (i, r) of left^T is entry (r, i) of left: read with both strides exchanged
    # it needs no copy
    _multiply(left, n_left, one, n_left, right, n_rows, n_right, scratch)
    for i in range(total.size):
        total[i] += scratch[i]
    if total_bias.size > 0:
        for r in range(0, left.size, n_left):
            for j in range(n_left):
                total_bias[j] += left[r + j]
