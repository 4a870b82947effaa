// What policies promise, on what that rests, and what the record leaves open.
import { amount, counted, el, estimate, percent, table, whole } from "./dom.js";
import { source } from "./source.js";

// What a watch over the questions that it ran on says, in tables that the server wrote.
function watched(told) {
  if (!told) return null;
  const notes = (of) => (of.length ? el("ul", { class: "notes small" }, ...of.map((note) => el("li", {}, note))) : null);
  const heads = (row, names) => row.map((cell, at) => (at < names ? el("th", { scope: "row" }, cell) : cell));
  return el("div", { class: "spaced watched" }, el("h4", {}, "Watched where it ran"),
    told.note ? el("p", { class: "plain" }, told.note) : null,
    ...told.alarms.map((alarm) => el("p", { class: "banner" }, alarm)),
    told.headline && !told.alarms.length ? el("p", { class: "promise" }, told.headline) : null,
    ...told.tables.flatMap((one) => [el("p", { class: "plain" }, one.title),
      table(one.name, one.heads, one.rows.map((row) => heads(row, one.names))), notes(one.notes)]));
}

export async function promises(main, record, signal) {
  const told = await source.promises(signal);
  const cards = told.promises.map((made) => el("section", { class: "guarantee", "aria-label": made.label },
    el("h3", {}, el("bdi", {}, made.label)),
    made.promise ? el("p", { class: "promise" }, made.promise) : null,
    el("p", { class: "plain" }, `Here, on ${record.scored_split ? `split ${record.scored_split}` : "all questions"}: ${record.metric} `, ...estimate(made.figures.score, percent), ` %, ${record.cost?.label ?? "cost"} `, ...estimate(made.figures.cost, amount), "."),
    made.terms.length ? el("dl", { class: "facts" }, ...made.terms.slice(0, 24)
      .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { dir: "auto" }, value)))) : null,
    made.notes.length ? el("ul", { class: "notes small" }, ...made.notes.map((note) => el("li", {}, note))) : null,
    watched(made.watched)));
  const cut = told.cut;
  main.replaceChildren(el("h2", {}, "Promises"), el("div", { class: "spaced" },
    cut ? el("p", { class: "notice" }, `${counted(cut.cut, "question")} of ${whole(cut.questions)} were cut before the full budget; ${whole(cut.explored)} explored ones stand for ${whole(cut.stood_for)} of them. ${whole(cut.unseen)} were not seen past their cut: figures past it leave them out.`) : "",
    ...cards,
    cards.length ? "" : el("p", { class: "plain" }, told.ready
      ? "None of these policies promises anything. One that does is chosen with: suffice choose TRACES --out chosen; show it with --policy chosen/policy.json. To watch a policy that ran here, name it with --policy."
      : "Policies are being replayed.")));
}
