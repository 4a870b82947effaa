// What the record is, and what its policies score and pay.
import { amount, counted, el, estimate, percent, picture, scaleOf, table, whole } from "./dom.js";
import { address, go, state } from "./state.js";
import { source } from "./source.js";

export const splitsOf = (record) => [["*", "all questions"], ...Object.keys(record.splits).filter(Boolean).map((name) => [name, `split ${name}`])];

export const familyOf = (policy) => (policy.name.startsWith("fixed-") ? "fixed" : policy.kind === "oracle" ? "oracle" : "adaptive");

export const markOf = (policy, index) => (policy.name.startsWith("fixed-") ? policy.name.slice(6) : String.fromCharCode(65 + (index % 26)));

export function named(policy, index) {
  return el("span", { class: "who" },
    el("span", { class: `mark ${familyOf(policy)}`, "aria-hidden": "true" }, markOf(policy, index)), el("bdi", {}, policy.label));
}

export async function overview(main, record, signal) {
  const children = [el("h2", {}, "Overview")];
  for (const warning of record.warnings) children.push(el("p", { class: "banner" }, warning));
  if (!record.policies.length) {
    children.push(el("p", { class: "plain" }, "Answers are being scored and policies replayed; the questions can be read meanwhile."));
    main.replaceChildren(...children, ...(await firstQuestions(signal)));
    return;
  }
  const split = record.split || "*";
  const select = el("select", { id: "overview-split", onchange: (event) => go(address({ split: event.target.value }, { keep: ["view"] })) },
    ...splitsOf(record).map(([value, label]) => el("option", { value, selected: value === split }, label)));
  const count = record.split ? record.splits[record.split] : record.questions;
  const known = record.cost ? record.cost.label : "cost";
  const apart = record.cost?.name !== "rounds";
  const rows = record.policies.map((policy, index) => [
    el("th", { scope: "row" }, named(policy, index), policy.adaptive && policy.summary !== policy.label ? el("span", { class: "rule-text" }, policy.summary) : "",
      el("a", { class: "rule-text", href: address({ view: "questions", policy: policy.name, split: record.split, outcome: "wrong" }), "data-go": true }, scaleOf(record)[3])),
    estimate(policy.score, percent),
    estimate(policy.cost, amount),
    ...(apart ? [estimate(policy.rounds, amount)] : []),
  ]);
  const head = ["Policy", `${record.metric} %`, known, ...(apart ? ["rounds"] : [])];
  const figure = el("figure", {}, el("h3", {}, `${record.metric} against ${known}`), el("div", { class: "drawn" }),
    el("figcaption", {}, "Squares and the dashed line: fixed budgets; circles: policies. Whiskers: 95% intervals of each score by itself. Above the line a policy earns its place."));
  children.push(
    el("div", { class: "crumbs" }, el("label", { for: "overview-split" }, "Figures of"), el("span", {}, select), el("span", {}, `${counted(count, "question")}; in brackets: 95% intervals`)),
    el("div", { class: "halves" }, table("Policies", head, rows, "policies"), figure),
  );
  if (record.notes.length || record.progress.trouble.length) {
    children.push(el("details", {}, el("summary", {}, `Notes: ${whole(record.notes.length + record.progress.trouble.length)}`),
      el("ul", { class: "notes small" }, ...[...record.progress.trouble, ...record.notes].map((note) => el("li", {}, note)))));
  }
  const run = Object.entries(record.run || {});
  if (run.length) {
    children.push(el("details", {}, el("summary", {}, "How it was recorded"),
      table("How it was recorded", ["setting", "value"], run.map(([name, value]) => [name, el("td", { dir: "auto" }, String(typeof value === "string" ? value : JSON.stringify(value)).slice(0, 300))]))));
  }
  main.replaceChildren(el("div", { class: "spaced" }, ...children));
  const drawn = picture(await source.chart({ split: record.split ? record.split : "*" }, signal).catch(() => ""));
  if (drawn) figure.querySelector(".drawn").append(drawn);
}

async function firstQuestions(signal) {
  const page = await source.questions({ limit: 20, split: state().split }, signal);
  return [el("ul", { class: "notes" }, ...page.rows.map((row) =>
    el("li", {}, el("a", { href: address({ view: "question", id: row.id }), "data-go": true, dir: "auto" }, row.question || row.id))))];
}
