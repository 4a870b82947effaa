// The frame: the record's facts, the views, keys, theme, and what is new.
import { byId, counted, el, whole } from "./dom.js";
import { address, go, state, whenChanged } from "./state.js";
import { isBundle, NotReady, source } from "./source.js";
import { overview } from "./overview.js";
import { questions } from "./questions.js";
import { question } from "./question.js";
import { whatIf } from "./what-if.js";
import { compare } from "./compare.js";
import { live } from "./live.js";
import { promises } from "./promises.js";

const VIEWS = {
  overview: ["Overview", overview],
  questions: ["Questions", questions],
  "what-if": ["What if", whatIf],
  compare: ["Compare", compare],
  live: ["Live", live],
  promises: ["Promises", promises],
};
const LISTED = Object.entries(VIEWS).filter(([name]) => !isBundle || name !== "live");
const main = byId("main");
let record = null;
let running = new AbortController();
let shownAs = "";

// --- theme ------------------------------------------------------------------------------------
const theme = byId("theme");
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : systemDark.matches);
const nameTheme = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
theme.hidden = false;
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
systemDark.addEventListener("change", nameTheme);
nameTheme();

// --- frame ------------------------------------------------------------------------------------
function frame() {
  const name = record.source.split(/[\\/]/).at(-1);
  byId("source").textContent = name;
  document.title = `${name} - Suffice viewer`;
  const splits = Object.entries(record.splits).filter(([split]) => split).map(([split, count]) => `${split} ${whole(count)}`);
  byId("about").textContent = `${counted(record.questions, "question")}, ${counted(record.recorded_rounds, "recorded round")}, at most ${record.rounds} each` +
    `${splits.length ? `; splits: ${splits.join(", ")}` : ""}${isBundle ? `; ${record.bundle}` : ""}`;
  measuring(record.progress);
}

function measuring(progress) {
  const ready = progress.done >= progress.of;
  byId("measuring").hidden = ready;
  if (ready) return;
  byId("bar").max = progress.of;
  byId("bar").value = progress.done;
  byId("doing").textContent = `${progress.doing || "measuring"} (${progress.done} of ${progress.of})`;
}

function marks() {
  const view = state().view || "overview";
  const current = view === "question" ? "questions" : view;
  byId("views").replaceChildren(...LISTED.map(([name, [label]]) =>
    el("li", {}, el("a", { href: address({ view: name === "overview" ? "" : name }), "data-go": true, "aria-current": name === current ? "page" : null }, label))));
}

const problem = (error) => el("p", { class: "notice error", role: "alert" }, String(error.message || error));

async function render({ again = false } = {}) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  marks();
  const name = state().view || "overview";
  const view = name === "question" ? question : (VIEWS[name] ?? VIEWS.overview)[1];
  try {
    if (!record) record = await opened(signal);
    frame();
    await view(main, record, signal, { again: again && shownAs === name });
  } catch (error) {
    if (signal.aborted) return;
    main.replaceChildren(problem(error));
  }
  if (signal.aborted) return;
  if (shownAs && shownAs !== name && !again) main.focus({ preventScroll: name === "what-if" });
  shownAs = name;
}

async function opened(signal) {
  for (;;) {
    try {
      return await source.record(state().split || "", signal);
    } catch (error) {
      if (!(error instanceof NotReady)) throw error;
      main.replaceChildren(el("p", { class: "plain" }, `${error.message} …`));
      await new Promise((resolve) => setTimeout(resolve, 300));
      if (signal.aborted) throw error;
    }
  }
}

// --- what is new ------------------------------------------------------------------------------
// While the record is measured the page renews what it shows; nothing typed is lost.
async function renew() {
  const before = record?.policies.length;
  record = await source.record(state().split || "", running.signal).catch(() => record);
  if (record) frame();
  const view = state().view || "overview";
  if (["what-if", "compare"].includes(view) && record?.policies.length !== before) render();
  if (["overview", "questions", "question", "live", "promises"].includes(view) && !main.contains(document.activeElement?.closest?.("form"))) render({ again: true });
}

function follow() {
  if (isBundle || !("EventSource" in window)) return;
  let policies = "";
  let version = null;
  const events = new EventSource("api/live");
  events.addEventListener("message", (event) => {
    const told = JSON.parse(event.data);
    if (told.opening) return;
    measuring(told);
    const grown = byId("grown");
    if (told.trouble) {
      grown.hidden = false;
      grown.textContent = told.trouble;
    }
    const now = `${told.version} ${told.done} ${told.ready}`;
    if (policies && now !== policies) renew();
    policies = now;
    if (version !== null && told.version !== version) {
      grown.hidden = false;
      if (!told.trouble) grown.replaceChildren(`The record grew to ${counted(told.questions, "question")}. `, el("a", { href: address({ view: "live" }), "data-go": true }, "See what is new"));
    }
    version = told.version;
  });
}

// --- keys -------------------------------------------------------------------------------------
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (typing) {
      event.preventDefault(); // a search box would be emptied
      typing.blur();
    } else if (state().view === "question") main.querySelector("a.list")?.click();
    return;
  }
  if (typing) return;
  if (event.key === "/") {
    event.preventDefault();
    const search = byId("f-text") || byId("rule");
    if (search) search.focus();
    else {
      go(address({ view: "questions" }));
      setTimeout(() => byId("f-text")?.focus(), 100);
    }
  }
  if (event.key === "j" || event.key === "k") {
    const links = [...main.querySelectorAll(".rows a")];
    if (links.length) {
      const at = links.indexOf(document.activeElement);
      links[Math.min(links.length - 1, Math.max(0, at < 0 ? 0 : at + (event.key === "j" ? 1 : -1)))].focus();
    } else main.querySelector(event.key === "j" ? "a.next" : "a.previous")?.click();
  }
});

whenChanged(render);
render();
follow();
