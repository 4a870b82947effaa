"""Worked examples for base models: from a small invented place that no data set uses, and from memory."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CLOSED_BOOK_EXAMPLES", "EXAMPLES", "UNANSWERABLE", "WorkedExample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedExample:
    """Evidence as (title, text), empty for an answer from memory, and the reply it should get."""

    evidence: tuple[tuple[str, str], ...]
    question: str
    answer: str
    confidence: int


EXAMPLES: tuple[WorkedExample, ...] = (
    WorkedExample(
        evidence=(
            (
                "Saltmere",
                "Saltmere is a harbour in Hanno, at the mouth of the river Iver. Saltmere "
                "was granted market rights in 1302.",
            ),
            (
                "Wexcombe",
                "Wexcombe is a village in Hanno, at the mouth of the river Orrin. Wexcombe "
                "was granted market rights in 1417.",
            ),
            (
                "Gullhaven",
                "Gullhaven is a harbour in Hanno, at the mouth of the river Teal. Gullhaven "
                "was granted market rights in 1266.",
            ),
        ),
        question="In what year was Wexcombe granted market rights?",
        answer="1417",
        confidence=5,
    ),
    WorkedExample(
        evidence=(
            (
                "The Quiet Orchard",
                "The Quiet Orchard is a film directed by Bram Essiwick. It was shot in nine "
                "weeks in Wexcombe.",
            ),
            (
                "The Ferry",
                "The Ferry is a film directed by Ama Tolliver. It was shot in Saltmere.",
            ),
            (
                "Ama Tolliver",
                "Ama Tolliver was a film director, born in Gullhaven in 1893. The brother of"
                " Tolliver was Piers Tolliver.",
            ),
            (
                "Bram Essiwick",
                "Bram Essiwick was a film director, born in Port Lanyard in 1889. The "
                "brother of Essiwick was Dorrit Essiwick.",
            ),
        ),
        question="Who was the brother of the director of the film The Quiet Orchard?",
        answer="Dorrit Essiwick",
        confidence=4,
    ),
    WorkedExample(
        evidence=(
            (
                "Hollin Bridge",
                "The Hollin Bridge crosses a gorge. It was opened in 1877 by Dorrit Vane.",
            ),
            (
                "Saltmere Bridge",
                "The Saltmere Bridge carries a road over the Iver. It was opened in 1851 by "
                "Piers Okonwe.",
            ),
        ),
        question="Who opened the older of the Hollin Bridge and the Saltmere Bridge?",
        answer="Piers Okonwe",
        confidence=3,
    ),
    WorkedExample(
        evidence=(
            (
                "Ostrel Lighthouse",
                "The Ostrel Lighthouse stands on Cape Hanno. The keeper of the Ostrel "
                "Lighthouse is Jora Pell.",
            ),
            (
                "Jora Pell",
                "Jora Pell was born in Wexcombe and lives in Saltmere.",
            ),
        ),
        question="Where does the keeper of the Ostrel Lighthouse live?",
        answer="Saltmere",
        confidence=4,
    ),
)

UNANSWERABLE = WorkedExample(
    evidence=(
        (
            "Port Lanyard",
            "Port Lanyard is a harbour in Hanno. Its lifeboat was built in 1921.",
        ),
        (
            "Tolliver Hall",
            "Tolliver Hall is a concert hall in Gullhaven, named after Ama Tolliver.",
        ),
    ),
    question="Which architect designed Tolliver Hall?",
    answer="unknown",
    confidence=1,
)
"""The evidence speaks of what is asked about and does not say it."""

CLOSED_BOOK_EXAMPLES: tuple[WorkedExample, ...] = (
    WorkedExample(
        evidence=(), question="What is the capital of Norway?", answer="Oslo", confidence=5
    ),
    WorkedExample(
        evidence=(),
        question="Who was born first, Johann Sebastian Bach or Wolfgang Amadeus Mozart?",
        answer="Johann Sebastian Bach",
        confidence=4,
    ),
    WorkedExample(
        evidence=(), question="In what year did the Titanic sink?", answer="1912", confidence=5
    ),
    WorkedExample(
        evidence=(),
        question="In which town was the painter of The Potato Eaters born?",
        answer="Zundert",
        confidence=2,
    ),
)
