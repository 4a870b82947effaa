// One question: its rounds as a timeline, its signals as small lines, where each policy stops and why.
import { amount, chip, counted, el, longText, percent, short, svg, table, UNKNOWN, verdict, whole } from "./dom.js";
import { address, state } from "./state.js";
import { patiently, source } from "./source.js";
import { named } from "./overview.js";

export async function question(main, record, signal, { again }) {
  const { id, rule, ...rest } = state();
  const told = await patiently(() => source.question(id, { ...rest, rule, view: "" }, signal), signal, (said) => { if (!again) main.replaceChildren(el("p", { class: "plain" }, `${said} …`)); });
  const open = again ? new Set([...main.querySelectorAll("details[open]")].map((each) => each.dataset.key)) : new Set();
  const near = told.near;
  const top = window.scrollY;
  main.replaceChildren(el("div", { class: "spaced" },
    crumbs(near, rest, rule),
    el("div", {},
      el("h2", { class: "quiet" }, "Question"),
      longText("p", "asked", told.question || told.id, 200),
      el("dl", { class: "about" }, ...[["Gold answers", told.gold.length ? told.gold.join("; ") : "none"], ["Type", told.type ?? UNKNOWN], ["Split", told.split ?? UNKNOWN], ["Id", told.id]]
        .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { dir: "auto" }, value))))),
    decisions(told, record),
    el("div", {}, el("h3", {}, "Rounds"),
      el("ol", { class: "timeline" }, ...told.rounds.map((round) => card(round, told, record, open)))),
    signals(told, record),
  ));
  if (again) window.scrollTo(0, top);
}

const UNITS = { llm_calls: "model call", prompt_tokens: "prompt token", completion_tokens: "written token", latency_s: "s" };

function crumbs(near, rest, rule) {
  const { view, ...query } = rest;
  const step = (id, class_, label) => (id ? el("a", { class: class_, href: address({ ...query, rule, view: "question", id }), "data-go": true }, label) : null);
  return el("nav", { class: "crumbs", "aria-label": "Between questions" },
    el("a", { class: "list", href: address({ ...query, rule, view: "questions" }), "data-go": true }, near ? `Back to ${counted(near.total, "question")}` : "All questions"),
    near ? step(near.previous, "previous", "← Previous") : null, near ? step(near.next, "next", "Next →") : null,
    near?.place ? el("span", {}, `${whole(near.place)} of ${whole(near.total)}`) : null);
}

function decisions(told, record) {
  if (!told.stops.length) return el("p", { class: "plain" }, "Policies are being replayed.");
  const rows = told.stops.map((stop, index) => [
    el("th", { scope: "row" }, named({ name: stop.policy, label: stop.label, kind: "" }, index)),
    String(stop.round),
    el("td", { class: "answer", dir: "auto" }, (told.rounds[stop.answer_round - 1]?.answer ?? "(no answer)").slice(0, 200)),
    [chip(stop.judged, record)],
    el("td", { class: "score", "data-head": record.metric }, percent(stop.score)),
    el("td", { class: "cost", "data-head": record.cost?.label ?? "cost" }, amount(stop.cost)),
    stop.reason,
  ]);
  const head = ["Policy", "Stop", "Answer there", "", `${record.metric} %`, record.cost?.label ?? "cost", "Why"];
  return el("div", {}, el("h3", {}, "Where policies stop"), table("Where policies stop, and why", head, rows, "why"));
}

function card(round, told, record, open) {
  const here = told.stops.map((stop, index) => [stop, index]).filter(([stop]) => stop.round === round.number);
  const spent = Object.entries(round.usage).map(([name, value]) => `${short(value)} ${UNITS[name]}${value === 1 || name === "latency_s" ? "" : "s"}`);
  const fold = (key, summary, ...content) => el("details", { "data-key": key, open: open.has(key) }, el("summary", {}, ...summary), ...content);
  return el("li", { class: `${verdict(round.judged, record)}${here.some(([stop]) => stop.adaptive) ? " stopped" : ""}` },
    el("div", { class: "round" },
      el("div", { class: "round-top" },
        el("h4", {}, `Round ${round.number}`), chip(round.judged, record), record.scale === "graded" ? null : el("small", {}, `${record.metric ?? "score"} ${percent(round.score)}`),
        here.length ? el("span", { class: "here" }, "stop here:", ...here.map(([stop]) => el("bdi", { class: "tag" }, stop.label))) : null,
        longText("span", "said", round.answer ?? "(not asked for an answer)", 200)),
      round.query ? el("p", { class: "query" }, "Searched for: ", el("bdi", {}, round.query)) : null,
      round.parse_failure ? el("p", { class: "spent" }, `Not parsed: ${round.parse_failure}`) : null,
      el("p", { class: "spent" }, spent.length ? spent.join(", ") : "calls and tokens not recorded"),
      ...round.passages.map((passage, index) => fold(`${round.number}-${index}`,
        [el("bdi", {}, passage.title || "untitled"), passage.score === null ? "" : ` (score ${short(passage.score)})`],
        longText("blockquote", null, passage.text ?? "The text was not recorded."))),
      round.samples.length ? fold(`${round.number}-samples`, [`${whole(round.samples.length)} samples`], el("ul", { class: "notes" }, ...round.samples.map((text) => el("li", { dir: "auto" }, text ?? "(none)")))) : null,
      round.response && round.response !== round.answer ? fold(`${round.number}-response`, ["What the model said"], longText("blockquote", null, round.response)) : null));
}

function signals(told, record) {
  const all = Object.entries(told.signals);
  const rest = record.ready ? "" : " More are being measured.";
  if (!all.length) return el("p", { class: "plain" }, `No signal is defined here.${rest}`);
  return el("div", {}, el("h3", {}, "Signals by round"), rest ? el("p", { class: "spent" }, rest) : null,
    el("div", { class: "sparks" }, ...all.map(([name, values]) => spark(name, values, record.signals[name]))));
}

function spark(name, values, meaning) {
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const x = (i) => (values.length < 2 ? 50 : 4 + (92 * i) / (values.length - 1));
  const y = (value) => (high === low ? 18 : 32 - (28 * (value - low)) / (high - low));
  const drawn = svg("svg", { viewBox: "0 0 100 36", preserveAspectRatio: "none", "aria-hidden": "true" });
  let run = [];
  const flush = () => { if (run.length > 1) drawn.append(svg("polyline", { class: "path", points: run.join(" ") })); run = []; };
  values.forEach((value, i) => (value === null ? flush() : run.push(`${x(i)},${y(value)}`)));
  flush();
  values.forEach((value, i) => { if (value !== null) drawn.append(svg("rect", { class: "at", x: x(i) - 1.2, y: y(value) - 2.5, width: 2.4, height: 5 })); });
  return el("div", { class: "spark" }, el("h4", { title: meaning }, ...name.split(/(?<=_)/).flatMap((part) => [part, el("wbr")])), drawn, el("p", {}, values.map(short).join(" → ")));
}
