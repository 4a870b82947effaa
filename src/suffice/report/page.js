"use strict";
(() => {
  const PAGE_SIZE = 25;
  const UNKNOWN = "-";
  const byId = (id) => document.getElementById(id);

  // Everything recorded enters the page as text, never as markup.
  function el(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  // --- theme ---------------------------------------------------------------------------------
  const theme = byId("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : systemDark.matches;
  };
  const nameTheme = () => {
    theme.textContent = isDark() ? "Light theme" : "Dark theme";
  };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  systemDark.addEventListener("change", nameTheme);
  nameTheme();

  // --- print: folded numbers are unfolded on paper ---------------------------------------------
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = [...document.querySelectorAll("details:not([open])")];
    for (const each of unfolded) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of unfolded) each.open = false;
  });

  // --- links: what they lead to is unfolded ----------------------------------------------------
  const unfold = (hash) => {
    const fold = byId(hash.slice(1))?.querySelector(":scope > details");
    if (fold) fold.open = true;
  };
  for (const each of document.querySelectorAll('a[href^="#"]')) {
    each.addEventListener("click", () => unfold(each.hash));
  }
  addEventListener("hashchange", () => unfold(location.hash));
  unfold(location.hash);

  // --- data ------------------------------------------------------------------------------------
  const data = JSON.parse(byId("report-data").textContent);
  const policies = data.policies.map(([mark, family, name]) => ({ mark, family, name }));
  const adaptive = policies.flatMap((policy, i) => (policy.family === "adaptive" ? [i] : []));
  const questions = data.questions.map(([id, text, type, gold, rounds, stops]) => {
    const shown = rounds.map(([answer, scores, passages, signals, usage, failure]) => ({
      answer, scores, passages, signals, usage, failure,
    }));
    const words = [id, text, ...gold, ...shown.map((round) => round.answer)];
    return { id, text, type, gold, rounds: shown, stops, words: words.join("\n").toLowerCase() };
  });
  if (!questions.length) {
    byId("explorer").replaceChildren(el("p", { class: "plain" }, "There are no questions to show."));
    byId("explorer").hidden = false;
    return;
  }

  const stopOf = (question, policy) => question.stops[policy][0];
  const roundAt = (question, number) => question.rounds[number - 1];
  const answerAt = (question, policy) => roundAt(question, question.stops[policy][1]);
  // What a round is judged by: exact match, or the record's own score, which may be graded.
  const judged = (round) => round?.scores[0] ?? null;
  const graded = data.scale === "graded";
  const [FULL, LESS, NONE, LEGEND] = {
    gold: ["right", "wrong", "no gold answer", "✓ right, ✗ wrong"],
    scores: ["right", "wrong", "no score", "✓ right (score 1), ✗ wrong (score 0)"],
    agreement: ["the last answer", "another", "nothing to agree with", "✓ the answer of the last round, ✗ another"],
    graded: ["a full score", "less", "no score", "filled by its score, in full for a score of 1"],
  }[data.scale];
  const scoreAt = (question, policy, score = 0) => answerAt(question, policy)?.scores[score] ?? null;
  const beaten = (question, policy, rounds) =>
    scoreAt(question, policy) !== null && rounds.some((round) => judged(round) > scoreAt(question, policy));
  const gap = (question, policy) => {
    const both = [policy, data.baseline].map((i) => scoreAt(question, i, data.compared));
    return both.includes(null) ? 0 : both[0] - both[1];
  };
  const labelled = (question) => question.rounds.some((round) => judged(round) !== null);

  // What the list can be narrowed to, for a question and the chosen policy.
  const OUTCOMES = [
    ["all questions", () => true],
    [`${FULL} at its stop`, (q, policy) => scoreAt(q, policy) === 1],
    [`${LESS} at its stop`, (q, policy) => scoreAt(q, policy) !== null && scoreAt(q, policy) < 1],
    [graded ? "a later round scores higher" : `stops before ${FULL}`, (q, policy) => beaten(q, policy, q.rounds.slice(stopOf(q, policy)))],
    [graded ? "an earlier round scores higher" : `goes past ${FULL}`, (q, policy) => beaten(q, policy, q.rounds.slice(0, Math.max(0, stopOf(q, policy) - 1)))],
    ["scores higher than the baseline", (q, policy) => gap(q, policy) > 0],
    ["scores lower than the baseline", (q, policy) => gap(q, policy) < 0],
    [`never ${FULL}`, (q) => labelled(q) && !q.rounds.some((round) => judged(round) === 1)],
    ["policies stop at different rounds", (q) => new Set(adaptive.map((i) => stopOf(q, i))).size > 1],
    [NONE, (q) => !labelled(q)],
  ].filter(([name]) => adaptive.length > 1 || name !== "policies stop at different rounds");

  const compareText = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  // Sorting is stable, so equal questions stay in the order of their ids.
  const ORDERS = [
    ["id", () => 0],
    ["question", (a, b) => compareText(a.text, b.text)],
    ["stop round", (a, b, policy) => stopOf(a, policy) - stopOf(b, policy)],
  ];

  // --- filters ---------------------------------------------------------------------------------
  const controls = {
    find: byId("find"),
    policy: byId("by-policy"),
    outcome: byId("by-outcome"),
    type: byId("by-type"),
    order: byId("by-order"),
  };
  const fill = (select, names) =>
    select.append(...names.map((name, i) => el("option", { value: String(i) }, name)));
  const types = [...new Set(questions.map((question) => question.type))].filter((type) => type !== null);
  types.sort(compareText);
  fill(controls.policy, policies.map(({ mark, name }) => `${mark}  ${name}`));
  fill(controls.outcome, OUTCOMES.map(([name]) => name));
  fill(controls.type, ["all", ...types]);
  fill(controls.order, ORDERS.map(([name]) => name));
  controls.policy.value = String(data.main);

  const state = { found: questions, page: 0, selected: questions[0] };
  const chosen = (control) => Number(control.value);

  function refresh() {
    const words = controls.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const policy = chosen(controls.policy);
    const keeps = OUTCOMES[chosen(controls.outcome)][1];
    const type = chosen(controls.type);
    const order = ORDERS[chosen(controls.order)][1];
    state.found = questions.filter(
      (question) =>
        (type === 0 || question.type === types[type - 1]) &&
        keeps(question, policy) &&
        words.every((word) => question.words.includes(word)),
    );
    state.found.sort((a, b) => order(a, b, policy));
    state.page = 0;
    showList();
    const kept = state.found.includes(state.selected);
    if (!kept && state.found.length) select(state.found[0]);
  }

  // --- list ------------------------------------------------------------------------------------
  const list = byId("question-list");

  const verdict = (value) => (value === null || graded ? "" : value === 1 ? " right" : " wrong");
  function cell(value, here) {
    const sign = value === null ? UNKNOWN : graded ? el("i", {}) : value === 1 ? "✓" : "✗";
    if (sign.style) sign.style.height = `${100 * value}%`;
    return el("span", { class: `cell${verdict(value)}${here ? " stop" : ""}`, "aria-hidden": "true" }, sign, graded ? "\u00a0" : "");
  }

  function strip(question, policy) {
    const stop = stopOf(question, policy);
    const cells = question.rounds.map((round, i) => cell(judged(round), i + 1 === stop));
    const right = question.rounds.flatMap((round, i) => (judged(round) === 1 ? [i + 1] : []));
    const said = !labelled(question) ? NONE
      : graded ? `scores ${question.rounds.map((round) => percent(judged(round))).join(", ")}`
      : right.length ? `${FULL} in rounds ${right.join(", ")}` : `never ${FULL}`;
    return el(
      "span",
      { class: "strip" },
      ...cells,
      el("span", { class: "quiet" }, `; ${said}; ${policies[policy].name} stops at round ${stop}`),
      question.type === null ? null : el("span", { class: "type" }, question.type),
    );
  }

  function showList() {
    const pages = Math.max(1, Math.ceil(state.found.length / PAGE_SIZE));
    const first = state.page * PAGE_SIZE;
    const policy = chosen(controls.policy);
    list.replaceChildren(
      ...state.found.slice(first, first + PAGE_SIZE).map((question) => {
        const button = el(
          "button",
          { type: "button", "aria-current": question === state.selected ? "true" : null },
          el("span", { class: "clamp", dir: "auto" }, question.text || question.id),
          strip(question, policy),
        );
        button.addEventListener("click", () => select(question, { reveal: true }));
        button.question = question;
        return el("li", {}, button);
      }),
    );
    list.scrollTop = 0;
    list.hidden = !state.found.length;
    byId("found").textContent =
      `${state.found.length} of ${questions.length} questions. ` +
      `One cell a round: ${LEGEND}; framed: where ${policies[policy].name} stops.`;
    byId("page").textContent = `Page ${state.page + 1} of ${pages}`;
    byId("page-back").disabled = state.page === 0;
    byId("page-on").disabled = state.page + 1 >= pages;
  }

  function turn(by) {
    state.page += by;
    showList();
    list.querySelector("button")?.focus();
  }

  list.addEventListener("keydown", (event) => {
    const buttons = [...list.querySelectorAll("button")];
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to === undefined || !buttons[to]) return;
    event.preventDefault();
    buttons[to].focus();
  });

  // --- one question ----------------------------------------------------------------------------
  const detail = byId("detail");
  const number = (value) =>
    value === null ? UNKNOWN : typeof value === "number" ? String(Number(value.toPrecision(4))) : value;
  const percent = (value) => (value === null ? UNKNOWN : (100 * value).toFixed(1));
  const mark = ({ mark: sign, family }) => el("span", { class: `mark ${family}` }, sign);
  const answerText = (round) => round.answer || "(no answer)";

  function chip(value) {
    const text = graded ? `${data.scores[0]} ${percent(value)}` : value === 1 ? `✓ ${FULL}` : `✗ ${LESS}`;
    return el("span", { class: `chip${verdict(value)}` }, value === null ? NONE : text);
  }
  const others = data.scores.slice(1);

  // Roles are explicit because narrow screens lay table rows out as blocks.
  function cellOf(content) {
    const cell = content instanceof HTMLTableCellElement ? content : el("td", {}, content);
    cell.setAttribute("role", "cell");
    return cell;
  }

  function table(name, class_, head, rows) {
    const columns = head.map((cell) => el("th", { scope: "col", role: "columnheader" }, cell));
    const row = ([first, ...rest]) =>
      el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader" }, first), ...rest.map(cellOf));
    return el(
      "div",
      { class: "scroll", role: "region", tabindex: "0", "aria-label": name },
      el(
        "table",
        { class: class_, role: "table" },
        el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...columns)),
        el("tbody", { role: "rowgroup" }, ...rows.map(row)),
      ),
    );
  }

  function stopsTable(question) {
    const rows = question.stops.map(([stop, , reason], i) => {
      const round = answerAt(question, i);
      const label = el("span", { class: "who" }, mark(policies[i]), el("bdi", {}, policies[i].name));
      return [
        label,
        String(stop),
        el("td", { class: "answer", dir: "auto" }, round ? answerText(round) : UNKNOWN),
        chip(judged(round)),
        ...others.map((name, n) => el("td", { class: "score", "data-head": name }, percent(scoreAt(question, i, n + 1)))),
        data.reasons[reason],
      ];
    });
    const head = ["Policy", "Round", "Answer there", data.scores[0], ...others.map((name) => `${name} %`), "Why"];
    return table("Where policies stop on this question", "why", head, rows);
  }

  function answerSet([, , , answers, cannot], { mark: sign, family, name }) {
    const members = answers.map(([answer, confidence, round]) =>
      el(
        "li",
        {},
        el("bdi", {}, answer),
        el("small", {}, ` ${number(confidence)}, round ${round}`),
      ));
    if (cannot) members.push(el("li", {}, el("span", { class: "chip" }, "Can't Answer")));
    if (!members.length) members.push(el("li", {}, el("small", {}, "an empty set")));
    return el(
      "div",
      { class: "answer-set" },
      el("span", { class: "who" }, mark({ mark: sign, family }), el("bdi", {}, name)),
      el("ul", { "aria-label": `Answer set of ${name}` }, ...members),
    );
  }

  function answerSets(question) {
    const sets = question.stops.flatMap((stop, i) => (stop[3] ? [answerSet(stop, policies[i])] : []));
    if (!sets.length) return null;
    const hint = "Each answer with its confidence and the round it was most confident in.";
    return el("div", {}, el("h4", {}, "Answer sets"), el("p", { class: "spent" }, hint), ...sets);
  }

  function passage([index, score]) {
    const [title, text] = data.passages[index];
    const scored = score === null ? "" : ` (score ${number(score)})`;
    const body = text === null ? "The text was not recorded." : text;
    return el(
      "details",
      {},
      el("summary", {}, el("bdi", {}, title || "untitled"), scored),
      el("blockquote", { dir: "auto" }, body),
    );
  }

  function roundCard(question, round, i) {
    const here = policies.filter((_, policy) => stopOf(question, policy) === i + 1);
    const spent = data.usage
      .map((name, column) => [name, round.usage[column]])
      .filter(([, value]) => value !== null)
      .map(([name, value]) => `${name} ${typeof value === "number" ? value.toLocaleString("en") : value}`);
    return el(
      "div",
      { class: "round" },
      el(
        "div",
        { class: "round-top" },
        el("h5", {}, `Round ${i + 1}`),
        chip(judged(round)),
        ...others.map((name, n) => el("small", {}, `${name} ${percent(round.scores[n + 1])}`)),
        here.length ? el("span", { class: "here" }, "stop here:", ...here.map(mark)) : null,
        el("span", { class: "said", dir: "auto" }, answerText(round)),
      ),
      round.failure === null ? null : el("p", { class: "spent" }, `Not parsed: ${round.failure}`),
      el("p", { class: "spent" }, spent.length ? spent.join(", ") : "calls and tokens not recorded"),
      ...round.passages.map(passage),
    );
  }

  function signalsTable(question) {
    const rows = data.signals.map((name, column) => [
      name,
      ...question.rounds.map((round) => number(round.signals[column])),
    ]);
    const head = ["Signal", ...question.rounds.map((_, i) => `Round ${i + 1}`)];
    return table("Signals by round", "signals", head, rows);
  }

  function about(question) {
    const pairs = [
      ["Gold answers", question.gold.length ? question.gold.join("; ") : "none"],
      ["Type", question.type ?? UNKNOWN],
      ["Id", question.id],
    ];
    return el(
      "dl",
      { class: "about" },
      ...pairs.map(([name, value]) =>
        el("div", {}, el("dt", {}, name), el("dd", { dir: "auto" }, value))),
    );
  }

  function steps() {
    const at = state.found.indexOf(state.selected);
    const button = (id, label, to) => {
      const made = el("button", { type: "button", id, disabled: !state.found[to] }, label);
      made.addEventListener("click", () => {
        state.page = Math.floor(to / PAGE_SIZE);
        select(state.found[to]);
        const again = byId(id);
        (again.disabled ? detail.querySelector("h3") : again).focus();
      });
      return made;
    };
    return el(
      "div",
      { class: "steps" },
      button("question-back", "Previous question", at - 1),
      button("question-on", "Next question", at + 1),
    );
  }

  function select(question, { reveal = false } = {}) {
    state.selected = question;
    for (const button of list.querySelectorAll("button")) {
      if (button.question === question) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
    if (![...list.querySelectorAll("button")].some((button) => button.question === question)) {
      if (state.found.includes(question)) showList();
    }
    const heading = el("h3", { tabindex: "-1", dir: "auto" }, question.text || question.id);
    const sets = answerSets(question);
    detail.replaceChildren(
      el("div", {}, heading, about(question)),
      steps(),
      stopsTable(question),
      ...(sets ? [sets] : []),
      el("div", {}, el("h4", {}, "Round by round"),
        ...question.rounds.map((round, i) => roundCard(question, round, i))),
      data.signals.length
        ? el("div", {}, el("h4", {}, "Signals"), signalsTable(question))
        : el("p", { class: "plain" }, "No signal is defined in these traces."),
    );
    if (reveal) {
      heading.focus({ preventScroll: true });
      const top = heading.getBoundingClientRect().top;
      if (top < 0 || top > innerHeight * 0.7) heading.scrollIntoView({ block: "start" });
    }
  }

  for (const control of Object.values(controls)) control.addEventListener("input", refresh);
  for (const link of document.querySelectorAll("a[data-outcome]")) {
    const outcome = OUTCOMES.findIndex(([name]) => name === `scores ${link.dataset.outcome} than the baseline`);
    link.addEventListener("click", () => {
      controls.find.value = "";
      [controls.type.value, controls.policy.value, controls.outcome.value] = ["0", data.main, outcome];
      refresh();
    });
  }
  byId("page-back").addEventListener("click", () => turn(-1));
  byId("page-on").addEventListener("click", () => turn(1));
  byId("explorer").hidden = false;
  showList();
  select(questions[0]);
})();
