"""Passages of all rounds by id: which of them a question had not listed before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.signals.columns.ragged import Ragged
from suffice.signals.columns.rounds import RoundColumns, by_appearance
from suffice.signals.columns.texts import Texts


@dataclass(frozen=True, slots=True, eq=False)
class Listings:
    """The passages that rounds list, end to end; those of a question with one id are one passage.

    ``passage`` (n_listings,) numbers them from 0 in the order in which they are first listed, so a question's
    are consecutive. ``places`` (n_passages,) are their first listings.
    """

    lists: Ragged
    passage: NDArray[np.int64]
    places: NDArray[np.int64]

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row in which each passage is first listed, (n_passages,), rising."""
        return self.lists.rows[self.places]

    @property
    def new(self) -> NDArray[np.int64]:
        """How many passages each row lists that no earlier round of its question lists, (n_rows,)."""
        return np.bincount(self.rows, minlength=len(self.lists))


def listings(rounds: RoundColumns) -> Listings:
    """Those of the column ``passages``."""
    lists = rounds.lists("passages")
    ids = codes_of_ids(lists.field("id"))
    keys = rounds.question[lists.rows] * (int(ids.max(initial=0)) + 1) + ids
    return Listings(lists, *by_appearance(keys))


def codes_of_ids(ids: pa.Array) -> NDArray[np.int64]:
    """Equal for equal ids, of which a null is an empty one."""
    return Texts.of(pc.fill_null(ids, "")).codes


def added_nothing(rounds: RoundColumns) -> NDArray[np.bool_]:
    """Rows whose passages were recorded and none of which is new by id, (n_rows,)."""
    listed = rounds.once(listings)
    return np.where(listed.new == 0, listed.lists.valid, False)


def unrecorded_so_far(rounds: RoundColumns) -> NDArray[np.bool_]:
    """Rows of whose question this round's passages or an earlier one's were not recorded, (n_rows,)."""
    return rounds.so_far(~rounds.lists("passages").valid)


@dataclass(frozen=True, slots=True, eq=False)
class GoldPassages:
    """How many a question names, (n_questions,), and which of the passages listed are so, (n_passages,)."""

    named: NDArray[np.int64]
    listed: NDArray[np.bool_]


def gold_passages(rounds: RoundColumns) -> GoldPassages:
    """Those that round 1 of each question names, each once."""
    named, listed = rounds.lists("gold_passage_ids"), rounds.once(listings)
    stated = rounds.first[named.rows] & named.values.is_valid().to_numpy(zero_copy_only=False)
    names = named.values.filter(pa.array(stated))
    ids = listed.lists.field("id").take(pa.array(listed.places))
    codes = codes_of_ids(pa.concat_arrays([names, ids]))
    rows = np.concatenate([named.rows[stated], listed.rows])
    keys = rounds.question[rows] * (int(codes.max(initial=0)) + 1) + codes
    wanted, firsts = np.unique(keys[: len(names)], return_index=True)
    return GoldPassages(
        np.bincount(rounds.question[rows[firsts]], minlength=rounds.traces.n_questions),
        np.isin(keys[len(names) :], wanted),
    )
