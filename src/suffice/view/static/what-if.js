// A rule is tried while it is typed: an older question is given up when a newer one is asked.
import { amount, byId, counted, debounce, el, estimate, options, percent, picture, table, use, whole } from "./dom.js";
import { address, go, state } from "./state.js";
import { isBundle, patiently, source } from "./source.js";
import { splitsOf } from "./overview.js";
import { rowsTable } from "./questions.js";

let asking = new AbortController();

export async function whatIf(main, record, signal, { again }) {
  if (again) return;
  if (isBundle) {
    main.replaceChildren(el("h2", {}, "What if"), el("p", { class: "plain" }, "A rule reads the signals of every round, which these files leave out to stay small. Where the record is, try one with:"),
      el("p", {}, el("code", { class: "long" }, `suffice view ${record.source}`)));
    return;
  }
  const wanted = state();
  if (!main.querySelector(".tried")) {
    main.replaceChildren(use("what-if-view"));
    const form = main.querySelector("form");
    const ask = () => {
      const values = Object.fromEntries(new FormData(form));
      go(address({ view: "what-if", ...values }), { replace: true, quietly: true });
      tried(main, record, values);
    };
    form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
    // The rule itself is asked as it is typed: asked again as it loses the focus, the result would be replaced under the click that took it.
    form.addEventListener("change", ({ target }) => target.id === "rule" || ask());
    byId("rule").addEventListener("input", debounce(ask, 90));
    main.querySelector(".signals").addEventListener("click", (event) => {
      const name = event.target.closest("button")?.textContent;
      if (!name) return;
      const rule = byId("rule");
      rule.value = rule.value.trim() ? `${rule.value.trim()} and ${name}` : name;
      rule.focus();
      ask();
    });
  }
  options(byId("against"), record.policies.map(({ name, label }) => [name, label]), wanted.against || `fixed-${record.rounds}`);
  options(byId("rule-split"), splitsOf(record), wanted.split || record.scored_split || "*");
  main.querySelector(".signals").replaceChildren(...Object.entries(record.signals).map(([name, meaning]) => el("li", {}, el("button", { type: "button" }, name), ` ${meaning}`)));
  if (byId("rule").value !== (wanted.rule ?? "")) byId("rule").value = wanted.rule ?? "";
  if (wanted.rule) await tried(main, record, Object.fromEntries(new FormData(main.querySelector("form"))));
  else byId("rule").focus();
  signal.addEventListener("abort", () => asking.abort());
}

async function tried(main, record, values) {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const said = byId("rule-said");
  const shown = main.querySelector(".tried");
  if (!values.rule.trim()) {
    said.textContent = "";
    shown.replaceChildren();
    return;
  }
  shown.classList.add("stale");
  const asked = performance.now();
  try {
    const told = await patiently(() => source.whatIf(values, signal), signal, (why) => { said.textContent = `${why} …`; });
    byId("rule").setAttribute("aria-invalid", told.error ? "true" : "false");
    if (told.error) {
      said.replaceChildren(told.error, ...placed(told));
      return;
    }
    said.textContent = `Worked out for ${counted(told.questions, "question")} in ${Math.round(performance.now() - asked)} ms.`;
    shown.classList.remove("stale");
    shown.replaceChildren(...result(told, record, values));
    const drawn = picture(await source.chart({ split: told.split || "*", rule: told.rule }, signal).catch(() => ""));
    if (drawn && !signal.aborted) shown.querySelector(".drawn")?.replaceChildren(drawn);
  } catch (error) {
    if (!signal.aborted) said.textContent = String(error.message);
  }
}

// The rule with the place that is wrong marked.
function placed({ rule, place }) {
  if (place === null || place === undefined) return [];
  const bad = rule.slice(place).match(/^\S+/)?.[0] ?? "";
  return [el("br"), el("code", {}, rule.slice(0, place), el("mark", {}, bad || "⎵"), rule.slice(place + bad.length))];
}

function result(told, record, values) {
  const other = record.policies.find(({ name }) => name === told.against)?.label ?? told.against;
  const full = `fixed-${record.rounds}`;
  const cost = record.cost?.label ?? "cost";
  const rows = [
    ["this rule", estimate(told.figures.score, percent), estimate(told.figures.cost, amount), estimate(told.figures.rounds, amount)],
    [other, estimate(told.other_figures.score, percent), estimate(told.other_figures.cost, amount), estimate(told.other_figures.rounds, amount)],
    [`this rule minus ${other}`, estimate(told.other.score, percent, { difference: true }), estimate(told.other.cost, amount, { difference: true }), estimate(told.other.rounds, amount, { difference: true })],
  ];
  if (told.against !== full) {
    rows.push([`this rule minus ${full}`, estimate(told.full.score, percent, { difference: true }), estimate(told.full.cost, amount, { difference: true }), estimate(told.full.rounds, amount, { difference: true })]);
  }
  if (record.cost?.name === "rounds") rows.forEach((row) => row.pop());
  const head = ["", `${record.metric} %`, cost, "rounds"].slice(0, rows[0].length);
  const most = Math.max(1, ...told.figures.stops, ...told.other_figures.stops);
  const bar = (share, class_) => {
    const made = el("div", { class: class_ });
    made.style.width = `${(100 * share) / most}%`;
    return made;
  };
  const bars = told.figures.stops.slice(1).map((count, i) => [
    el("span", {}, `round ${i + 1}`),
    el("div", {}, bar(count, "bar"), bar(told.other_figures.stops[i + 1] ?? 0, "bar other")),
    el("span", {}, whole(Math.round(count))),
  ]);
  const link = address({ view: "questions", policy: "what-if", rule: told.rule, differs: told.against, split: told.split });
  const page = { policies: [told.against, "what-if"], rows: told.changed_rows };
  return [
    table("What the rule scores and pays", head, rows, "policies figures-of"),
    el("div", { class: "halves" },
      el("div", {}, el("h3", {}, "Where it stops"), el("div", { class: "bars" }, ...bars.flat()), el("p", { class: "spent" }, `Thin: ${other}.`),
        el("p", { class: "plain" }, `Stops ${counted(told.changed, "question")} elsewhere than ${other}, ${whole(told.earlier)} of them earlier. `,
          `Better than ${other} on ${whole(told.gained)}, worse on ${whole(told.lost)}.`)),
      el("figure", {}, el("h3", {}, `${record.metric} against ${cost}`), el("div", { class: "drawn" }))),
    told.changed ? el("h3", {}, `Questions that stop elsewhere${told.changed > told.changed_rows.length ? `, the first ${told.changed_rows.length}` : ""}`) : "",
    told.changed ? rowsTable("Questions that stop elsewhere", page, "what-if", record, { rule: told.rule, policy: "what-if", differs: told.against, split: told.split }) : "",
    told.changed ? el("p", { class: "more-link" }, el("a", { href: link, "data-go": true }, `All ${counted(told.changed, "question")} in the table`)) : "",
  ];
}
