// The table of questions: filters, order, pages by cursor. The address holds them all.
import { amount, byId, cell, counted, debounce, el, options, percent, scaleOf, table, use, verdict, whole } from "./dom.js";
import { address, go, state } from "./state.js";
import { isBundle, patiently, source } from "./source.js";

const KEPT = ["view", "text", "policy", "outcome", "stop", "differs", "split", "type", "signal", "low", "high", "sort", "order", "rule"];

export function strip(row, stop, record) {
  const [full, less] = scaleOf(record);
  const said = (value) => ({ right: full, wrong: less })[verdict(value, record)] ?? percent(value);
  return el("span", { class: "strip", role: "img", "aria-label": `${row.judged ? row.judged.map((value, i) => `round ${i + 1} ${said(value)}`).join(", ") : "not scored yet"}; stops at round ${stop ?? "?"}` },
    ...Array.from({ length: Math.min(row.rounds, 12) }, (_, i) => cell(row.judged?.[i], record, i + 1 === stop)), row.rounds > 12 ? "…" : null);
}

export function rowsTable(name, page, policy, record, linkKeeps = {}) {
  const at = Math.max(0, page.policies.indexOf(policy));
  const head = ["Question", el("th", { scope: "col", class: "type" }, "Type"), el("th", { scope: "col", class: "split" }, "Split"), "Rounds", "Stop", `${record.metric ?? "Score"} %`,
    el("th", { scope: "col", class: "cost" }, record.cost?.label ?? "Cost")];
  return table(name, head, page.rows.map((row) => {
    const [stop, judged, score, cost] = row.stops[at] ?? [];
    return [
      el("th", { scope: "row" }, el("a", { href: address({ ...linkKeeps, view: "question", id: row.id }), "data-go": true },
        el("span", { class: "clamp", dir: "auto" }, row.question || row.id), row.question ? el("small", {}, row.id) : null)),
      el("td", { class: "type", dir: "auto" }, row.type ?? ""),
      el("td", { class: "split" }, row.split ?? ""),
      [strip(row, stop, record)],
      stop ?? "",
      el("td", { class: `${verdict(judged, record)}-text` }, percent(score)),
      el("td", { class: "cost" }, amount(cost)),
    ];
  }), "rows");
}

export async function questions(main, record, signal, { again }) {
  const wanted = state();
  if (!main.querySelector(".wide-filters")) {
    main.replaceChildren(use("questions-view"));
    wire(main);
  }
  fill(main.querySelector("form"), record, wanted);
  const found = main.querySelector(".found");
  const { view, id, ...query } = wanted;
  const page = await patiently(() => source.questions(query, signal), signal, (said) => { found.textContent = `${said} …`; });
  const full = `fixed-${record.rounds}`;
  const policy = wanted.policy || full;
  const label = record.policies.find((each) => each.name === policy)?.label ?? policy;
  found.textContent = page.total
    ? `${counted(page.total, "question")}${page.total < record.questions ? ` of ${whole(record.questions)}` : ""}. One cell a round: ${scaleOf(record)[2]}; framed: where ${label} stops.`
    : "No question is like that.";
  const focused = again ? [...main.querySelectorAll(".rows a")].indexOf(document.activeElement) : -1;
  main.querySelector(".results").replaceChildren(page.total ? rowsTable("Questions", page, policy, record, filtersOf(wanted)) : "");
  if (focused >= 0) main.querySelectorAll(".rows a")[focused]?.focus();
  main.querySelector(".pager").hidden = !page.total;
  const last = page.first + page.rows.length - 1;
  main.querySelector(".at").textContent = page.total ? `${whole(page.first)}–${whole(last)} of ${whole(page.total)}` : "";
  const [back, on] = [main.querySelector(".back"), main.querySelector(".on")];
  back.disabled = page.previous === null;
  on.disabled = page.next === null;
  back.onclick = () => turn({ cursor: page.previous, page: "back" });
  on.onclick = () => turn({ cursor: page.next });
}

const filtersOf = (wanted) => Object.fromEntries(KEPT.filter((name) => name !== "view" && name in wanted).map((name) => [name, wanted[name]]));

function turn(changes) {
  go(address(changes, { keep: KEPT }));
  byId("main").scrollIntoView();
}

function wire(main) {
  const form = main.querySelector("form");
  const rare = ["stop", "differs", "split", "type", "signal", "low", "high", "sort", "order"];
  form.querySelector("details").open = innerWidth > 700 || rare.some((name) => state()[name]);
  const changed = () => {
    const values = Object.fromEntries(new FormData(form));
    const rule = values.policy === "what-if" || values.differs === "what-if" ? state().rule : "";
    go(address({ view: "questions", ...values, rule, sort: values.sort === "id" ? "" : values.sort }), { replace: true });
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    go(address({ view: "questions" }));
  });
  form.addEventListener("change", changed);
  form.addEventListener("input", debounce((event) => event.target.type === "search" || event.target.inputMode ? changed() : null, 180));
}

function fill(form, record, wanted) {
  const policies = record.policies.map(({ name, label }) => [name, label]);
  if (wanted.rule) policies.push(["what-if", `what if: ${wanted.rule.slice(0, 60)}`]);
  const full = `fixed-${record.rounds}`;
  const [[mark, less], graded] = [scaleOf(record), record.scale === "graded"];
  const lists = {
    outcome: [["", "all"], ["right", `${mark} at its stop`], ["wrong", `${less} at its stop`],
      ["early", graded ? "a later round scores higher" : `stops before ${mark}`], ["late", graded ? "an earlier round scores higher" : `goes past ${mark}`],
      ["gained", graded ? "scores higher than the other" : `${mark}, ${less} under the other`], ["lost", graded ? "scores lower than the other" : `${less}, ${mark} under the other`],
      ["unknown", "not scored"]],
    policy: [["", `${full} (full budget)`], ...policies.filter(([name]) => name !== full)],
    differs: [["", "any"], ...policies],
    stop: [["", "any"], ...Array.from({ length: record.rounds }, (_, i) => [String(i + 1), `round ${i + 1}`])],
    split: [["", "all"], ...Object.keys(record.splits).filter(Boolean).map((name) => [name, name])],
    type: [["", "all"], ...record.types.filter(Boolean).map((name) => [name, name])],
    signal: [["", isBundle ? "not in a bundle" : "any"], ...(isBundle ? [] : Object.keys(record.signals).map((name) => [name, name]))],
    sort: [["id", "id"], ["question", "question"], ["stop", "stop round"], ["score", "score"], ["cost", "cost"],
      ...(isBundle ? [] : Object.keys(record.signals).map((name) => [`signal:${name}`, name]))],
  };
  for (const [name, pairs] of Object.entries(lists)) {
    const select = form.elements[name];
    const value = wanted[name] ?? pairs[0][0];
    const now = JSON.stringify(pairs);
    if (select.dataset.pairs !== now) {
      select.dataset.pairs = now;
      options(select, pairs, value);
    }
    if (select.value !== value) select.value = value;
  }
  for (const name of ["text", "low", "high", "order"]) {
    const control = form.elements[name];
    if (control !== document.activeElement && control.value !== (wanted[name] ?? "")) control.value = wanted[name] ?? "";
  }
  form.elements.type.closest(".field").hidden = record.types.length < 2;
  form.elements.split.closest(".field").hidden = Object.keys(record.splits).length < 2;
}
