// Two policies on the same questions, with paired differences.
import { amount, byId, counted, el, estimate, options, percent, scaleOf, table, use, whole } from "./dom.js";
import { address, go, state } from "./state.js";
import { patiently, source } from "./source.js";
import { splitsOf } from "./overview.js";

export async function compare(main, record, signal) {
  const wanted = state();
  if (!main.querySelector(".compared")) {
    main.replaceChildren(use("compare-view"));
    const form = main.querySelector("form");
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", () => go(address({ view: "compare", ...Object.fromEntries(new FormData(form)) })));
  }
  const names = record.policies.map(({ name, label }) => [name, label]);
  if (!names.length) {
    main.querySelector(".found").textContent = "Policies are being replayed …";
    return;
  }
  const adaptive = record.policies.find((policy) => policy.adaptive)?.name ?? names[0][0];
  const [a, b] = [wanted.a || adaptive, wanted.b || `fixed-${record.rounds}`];
  options(byId("one"), names, a);
  options(byId("other"), names, b);
  const split = wanted.split || record.scored_split || "*";
  options(byId("compare-split"), splitsOf(record), split);
  const told = await patiently(() => source.compare({ a, b, split }, signal), signal, (said) => { main.querySelector(".found").textContent = `${said} …`; });
  const label = (name) => names.find(([each]) => each === name)?.[1] ?? name;
  main.querySelector(".found").textContent = `${counted(told.questions, "question")}; they stop elsewhere in ${whole(told.changed)}.`;
  const rows = [
    [`A: ${label(a)}`, estimate(told.a.score, percent), estimate(told.a.cost, amount), estimate(told.a.rounds, amount)],
    [`B: ${label(b)}`, estimate(told.b.score, percent), estimate(told.b.cost, amount), estimate(told.b.rounds, amount)],
    ["A minus B, paired", estimate(told.difference.score, percent, { difference: true }), estimate(told.difference.cost, amount, { difference: true }), estimate(told.difference.rounds, amount, { difference: true })],
  ];
  if (record.cost?.name === "rounds") rows.forEach((row) => row.pop());
  const head = ["", `${record.metric} %`, record.cost?.label ?? "cost", "rounds"].slice(0, rows[0].length);
  const part = told.split;
  const link = (text, changes) => el("a", { href: address({ view: "questions", split: part, ...changes }), "data-go": true }, text);
  const [full, less] = scaleOf(record);
  const graded = record.scale === "graded";
  const counts = [
    [`both ${full}`, whole(told.both_right), ""],
    [graded ? "A scores higher" : `A ${full}, B ${less}`, whole(told.gained), link("show them", { policy: a, outcome: "gained", differs: b })],
    [graded ? "A scores lower" : `A ${less}, B ${full}`, whole(told.lost), link("show them", { policy: a, outcome: "lost", differs: b })],
    [graded ? "the same, less than full" : `both ${less}`, whole(told.both_less), ""],
    ["stop elsewhere", whole(told.changed), link("show them", { policy: a, differs: b })],
    ["of which A earlier", whole(told.earlier), ""],
  ];
  const rounds = Array.from({ length: record.rounds }, (_, i) => i + 1);
  main.querySelector(".compared").replaceChildren(el("div", { class: "spaced" },
    table("Scores and costs, with 95% intervals", head, rows, "policies"),
    el("div", { class: "halves" },
      el("div", {}, el("h3", {}, "Questions"), table("Questions by outcome", ["", "questions", ""], counts, "policies")),
      el("div", {}, el("h3", {}, "Where A stops (rows) and B (columns)"),
        table("Stop rounds of A and B", ["A", ...rounds.map((round) => `B ${round}`)], rounds.map((round) => [`round ${round}`, ...rounds.map((at) => whole(Math.round(told.stops[round][at])))]), "matrix")))));
}
