// Questions that came while the record was looked at, the newest first.
import { counted, el } from "./dom.js";
import { address } from "./state.js";
import { source } from "./source.js";

export async function live(main, record, signal) {
  const told = await source.arrived(signal);
  main.replaceChildren(
    el("h2", {}, "Live"),
    el("p", { class: "plain" }, `Questions that were finished since this viewer was opened. The record holds ${counted(record.questions, "question")}; its folder is looked at every second.`),
    told.trouble ? el("p", { class: "notice error", role: "alert" }, told.trouble) : "",
    el("p", { class: "found", role: "status", "aria-live": "polite" }, told.questions.length ? `${counted(told.questions.length, "new question")}.` : "None yet."),
    el("ul", { class: "notes rows" }, ...told.questions.map(({ id, question }) => el("li", {}, el("a", { href: address({ view: "question", id }), "data-go": true }, el("bdi", {}, question || id))))),
  );
}
