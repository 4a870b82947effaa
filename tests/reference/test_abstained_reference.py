"""What ``abstained`` finds among the answers of recorded models, against labels by hand.

Every distinct answer that holds a word such as not, no, unknown, information, text or answer was read;
the others, and answers over 250 characters (reasoning that was cut off), were not.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from tests.signal_twins import abstains

from suffice.signals.abstained import ABSTENTION_PHRASES, ready

USUAL = ready(ABSTENTION_PHRASES)
RECORDS = (
    "routes_llama8b_dev",
    "abrag_hotpotqa_ollama",
    "abrag_hotpotqa_local",
    "hotpotqa_qwen1.5b",
)
ABSTAINING = {
    "i do not know",
    "it is not mentioned in the text",
    "no, it is unknown",
    "no, unknown",
    "none",
    "none known",
    "not applicable",
    "not available",
    "not available in the given text",
    "not available in the text",
    "not clear",
    "not in the",
    "not in the provided text. however, i can suggest some possible sources where you",
    "not in the text",
    "not known",
    "not mentioned",
    "not mentioned in the text",
    "not specified",
    "the child of the victim of romance scam is not specified in the text",
    "there is no answer",
    "there is no answer to this question",
    "there is no answer to this question as it is based on incorrect information",
    "there is no information about a two piece costume worn in judo",
    "there is no information about puss in boots season 6",
    "there is no information about roncalli leaving bergamo to work in moscow",
    "there is no information about season 4 of blackish",
    "there is no information about the 2008 primary in the bronx",
    "there is no information about the death of erle c. kenton",
    "there is no information about the director of film the devil's playground (1937 ",
    "there is no information about the length of the paseo maritimo",
    "there is no information about the length of the paseo maritimo in the provided t",
    "there is no information about the number of students enrolled in polytechnic sch",
    "there is no information about venu studying in any film school",
    "there is no information available",
    "there is no information in the provided text about cbs associated becoming",
    "there is no information in the text about a plant being brought to st. barts fro",
    "this question is not answerable",
    "unknown",
    "unknown (country not specified)",
    "unknown (no information about kirton end's location)",
    "unknown (no information about the country where brown state fishing lake is loca",
    "unknown (the question asks about a 2009 film, but the provided evidence only dis",
    "unknown. no information is provided about bordan tkachuk's company",
}
"""In lower case, without final dots, the first 80 characters."""


def answers_of(path: Path) -> Counter[str]:
    columns = [name for name in ("answer", "samples") if name in pq.read_schema(path).names]
    table = pq.read_table(path, columns=columns)
    cells = [cell for name in columns for cell in table.column(name).to_pylist()]
    flat = (text for cell in cells for text in ([cell] if isinstance(cell, str) else cell or ()))
    return Counter(text for text in flat if len(text) <= 250)


def test_precision_and_recall_among_recorded_answers(data_folder: Path) -> None:
    found = right = there = total = 0
    for name in RECORDS:
        for answer, count in answers_of(data_folder / "traces" / f"{name}.parquet").items():
            hedged = answer.lower().strip(". ")[:80] in ABSTAINING or not answer.strip()
            recognised = abstains(USUAL, answer)
            total += count
            found += count * recognised
            there += count * hedged
            right += count * (recognised and hedged)
    assert (total, there, found, right) == (12982, 331, 331, 329)


def test_no_gold_answer_of_these_questions_abstains(data_folder: Path) -> None:
    path = data_folder / "traces" / "routes_llama8b_dev.parquet"
    table = pq.read_table(path, columns=["gold_answers"])
    gold = {answer for accepted in table.column("gold_answers").to_pylist() for answer in accepted}
    abstaining = {answer for answer in gold if abstains(USUAL, answer)}
    assert {answer for answer in abstaining if any(map(str.isalnum, answer))} == {"The The"}
    assert {",", "/-"} < abstaining  # marks alone hold no word, in any script
