// The record as static files: what a server would work out is filtered here, or was worked out before.
const PAGE = 50;

export function bundled() {
  const read = async (name, signal) => {
    const reply = await fetch(name, { signal });
    if (!reply.ok) throw new Error(`${name} is not there (${reply.status})`);
    return reply.json();
  };
  let whole = null;
  let list = null;
  const about = (signal) => (whole ??= read("data/record.json", signal));
  const rows = (signal) => (list ??= read("data/questions.json", signal));

  const holds = (row, at, other, query) => {
    const [stop, own] = row.stops[at] ?? [0, null];
    const words = (query.text ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const than = row.stops[other]?.[1] ?? null;
    const higher = (from, to) => own !== null && (row.judged ?? []).slice(from, to).some((value) => value > own);
    const outcome = {
      right: () => own === 1,
      wrong: () => own !== null && own < 1,
      unknown: () => own === null,
      gained: () => own !== null && than !== null && own > than,
      lost: () => own !== null && than !== null && own < than,
      early: () => higher(stop),
      late: () => higher(0, Math.max(0, stop - 1)),
    }[query.outcome];
    return (
      (!query.split || row.split === query.split) &&
      (!query.type || row.type === query.type) &&
      (!query.stop || stop === Number(query.stop)) &&
      (!query.differs || row.stops[other]?.[0] !== stop) &&
      (!outcome || outcome()) &&
      words.every((word) => `${row.id}\n${row.question}\n${row.answers ?? ""}`.toLowerCase().includes(word))
    );
  };

  const selected = async (query, signal) => {
    const { policies, rows: all } = await rows(signal);
    const at = query.policy ? policies.indexOf(query.policy) : policies.indexOf((await about(signal)).full);
    const other = policies.indexOf(query.differs);
    const found = all.filter((row) => holds(row, at, other, query));
    const last = (value) => (value === null || value === undefined ? Infinity : value);
    const key = {
      question: (row) => row.question,
      stop: (row) => row.stops[at]?.[0],
      score: (row) => last(row.stops[at]?.[2]),
      cost: (row) => last(row.stops[at]?.[3]),
    }[query.sort];
    const turn = query.order === "desc" ? -1 : 1;
    if (key) found.sort((a, b) => turn * (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0));
    else if (turn < 0) found.reverse();
    return { policies, found };
  };

  return {
    record: async (split, signal) => {
      const { records, ...rest } = await about(signal);
      return { ...rest, ...records[split || rest.scored_split || "*"] };
    },
    questions: async (query, signal) => {
      const { policies, found } = await selected(query, signal);
      const place = query.cursor ? found.findIndex((row) => row.row === Number(query.cursor)) : -1;
      const first = !query.cursor ? 0 : query.page === "back" ? Math.max(0, place - PAGE) : place + 1;
      const shown = found.slice(first, first + PAGE);
      return {
        total: found.length, first: shown.length ? first + 1 : 0, policies, rows: shown,
        next: first + PAGE < found.length ? shown.at(-1).row : null, previous: first ? shown[0]?.row ?? null : null,
      };
    },
    question: async (id, query, signal) => {
      const { rows: all } = await rows(signal);
      const row = all.find((each) => each.id === id);
      if (row?.file === undefined || row.file === null) throw new Error("This question's rounds are not in the bundle, whose size is capped.");
      const documents = await read(`data/rounds-${row.file}.json`, signal);
      const { found } = await selected(query, signal);
      const place = found.indexOf(row);
      const near = { total: found.length, place: place + 1, next: found[place + 1]?.id ?? null, previous: place > 0 ? found[place - 1].id : null };
      return { ...documents[id], near };
    },
    compare: async ({ a, b, split }, signal) => {
      const { pairs } = await about(signal);
      const told = pairs[`${a}\n${b}\n${split || ""}`];
      if (!told) throw new Error("This pair was not worked out for the bundle; run suffice view on the record.");
      return told;
    },
    promises: async (signal) => (await about(signal)).promises_made,
    arrived: async () => ({ questions: [] }),
    chart: async ({ split }, signal) => {
      const told = await about(signal);
      return told.records[split || told.scored_split || "*"].chart;
    },
  };
}
