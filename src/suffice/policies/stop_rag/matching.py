"""How well the tokens of a document match those of a question, for many pairs at once.

Two depths are compared alike: vectors of the vocabulary, which find words again, and vectors after the
encoder's layers, which find meanings again.
"""

from __future__ import annotations

from typing import Any

from suffice.policies.stop_rag.encoder import Batch, torch_module

__all__ = ["MATCHES", "matches", "mean_vector"]

MATCHES = 10  # numbers a pair gets at each depth
_LOWEST = 3  # the question's tokens, or words, that are matched worst
_FOUND = 0.95  # a cosine from which a word counts as found


def mean_vector(vectors: Any, mask: Any) -> Any:
    """Mean over the masked tokens, (P, width); 0 where there is none."""
    kept = mask.unsqueeze(-1)
    return (vectors * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)


def matches(vectors: Any, batch: Batch) -> tuple[Any, Any]:
    """How well the document matches the question, (P, 10), and the match of each token's word, (P, L).

    Zero where either has no token.

    With b_i the best cosine of question token i with a document token, and w_j the lowest b of the
    tokens of word j: of b and of w the mean, the mean of the three lowest and the mean of (1 - .)^2; the
    share of w above 0.95; the cosine of the two parts' mean vectors; and with question and document
    exchanged the mean of w and the share above 0.95. Words matter because a long name is many tokens.
    The match of a question's token is the w of its word.
    """
    torch = torch_module()
    question, document = batch.question, batch.document
    unit = torch.nn.functional.normalize(vectors, dim=-1)
    cosines = torch.matmul(unit, unit.transpose(1, 2))
    best = cosines.masked_fill(~document.unsqueeze(1), -1.0).amax(dim=-1)  # (P, L)
    back = cosines.masked_fill(~question.unsqueeze(1), -1.0).amax(dim=-1)
    words, known = _by_word(best, batch.words, question)
    back_words, back_known = _by_word(back, batch.words, document)
    parts = torch.nn.functional.cosine_similarity(
        mean_vector(vectors, question), mean_vector(vectors, document), dim=-1
    )
    found = torch.stack(
        [
            *_spread(best, question),
            *_spread(words, known),
            _share(words, known),
            parts,
            _spread(back_words, back_known)[0],
            _share(back_words, back_known),
        ],
        dim=-1,
    )
    both = (question.any(dim=1) & document.any(dim=1)).unsqueeze(-1)
    by_token = words.gather(1, batch.words.clamp(min=0)) * question
    return found * both, by_token * both


def _by_word(values: Any, words: Any, part: Any) -> tuple[Any, Any]:
    """The lowest value of each word's tokens, (P, W), and which words there are."""
    torch = torch_module()
    there = part & (words >= 0)
    count = int(words.max()) + 1 if words.numel() else 0
    lowest = torch.full((len(values), max(1, count)), 2.0, dtype=values.dtype, device=values.device)
    lowest = lowest.scatter_reduce(
        1, words.clamp(min=0), values.masked_fill(~there, 2.0), reduce="amin"
    )
    return lowest, lowest < 1.5


def _spread(values: Any, there: Any) -> list[Any]:
    """Mean, mean of the three lowest, and mean of (1 - value)^2 over what is there, each (P,)."""
    torch = torch_module()
    count = there.sum(dim=1).clamp(min=1)
    low = values.masked_fill(~there, 2.0).topk(min(_LOWEST, values.shape[1]), largest=False).values
    low = torch.where(low > 1.5, torch.zeros_like(low), low)
    kept = values.masked_fill(~there, 1.0)
    return [
        values.masked_fill(~there, 0.0).sum(dim=1) / count,
        low.sum(dim=1) / count.clamp(max=_LOWEST),
        (1.0 - kept).square().sum(dim=1) / count,
    ]


def _share(values: Any, there: Any) -> Any:
    """The share above 0.95 of what is there, (P,)."""
    count = there.sum(dim=1).clamp(min=1)
    return ((values > _FOUND) & there).sum(dim=1) / count
