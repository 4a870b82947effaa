// Everything recorded enters the page as text, never as markup.
export const byId = (id) => document.getElementById(id);

export function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

export const use = (id) => byId(id).content.cloneNode(true);

export const UNKNOWN = "-";
export const whole = (value) => Number(value).toLocaleString("en");
export const counted = (value, noun) => `${whole(value)} ${noun}${value === 1 ? "" : "s"}`;
export const short = (value) =>
  value === null || value === undefined ? UNKNOWN : typeof value === "number" ? String(Number(value.toPrecision(4))) : value;
export const percent = (value) => (value === null || value === undefined ? UNKNOWN : (100 * value).toFixed(1));
export const amount = (value) =>
  value === null || value === undefined ? UNKNOWN : Math.abs(value) >= 100 ? whole(Math.round(value)) : value.toFixed(2);
const signed = (text, value) => (value > 0 ? `+${text}` : text);

export function estimate(interval, shown, { difference = false } = {}) {
  if (!interval) return [UNKNOWN];
  const say = (value) => (difference ? signed(shown(value), value) : shown(value));
  return [say(interval.estimate), " ", el("small", {}, `[${say(interval.low)}, ${say(interval.high)}]`)];
}

// The column heads of a table are texts; a row is its head and its cells.
export function table(name, head, rows, class_ = "") {
  const cell = (content) =>
    content instanceof HTMLTableCellElement ? content : el("td", {}, ...(Array.isArray(content) ? content : [content]));
  return el(
    "div",
    { class: `scroll ${class_}`, role: "region", tabindex: "0", "aria-label": name },
    el(
      "table",
      {},
      el("caption", { class: "quiet" }, name),
      el("thead", {}, el("tr", {}, ...head.map((each) =>
        each instanceof HTMLTableCellElement ? each : el("th", { scope: "col" }, each)))),
      el("tbody", {}, ...rows.map(([first, ...rest]) =>
        el("tr", {}, first instanceof HTMLTableCellElement ? first : el("th", { scope: "row" }, first), ...rest.map(cell)))),
    ),
  );
}

export function options(select, pairs, chosen) {
  select.replaceChildren(...pairs.map(([value, label]) => el("option", { value }, label)));
  if (pairs.some(([value]) => value === chosen)) select.value = chosen;
}

// A picture that the server drew, of numbers and escaped names: parsed as a picture, it runs nothing.
export function picture(text) {
  const parsed = new DOMParser().parseFromString(text, "text/html").body.firstElementChild;
  return parsed instanceof SVGElement ? parsed : null;
}

export function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

// What judges a round: its full mark, less than that, the legend, and a link to the latter.
const SCALES = {
  gold: ["right", "wrong", "✓ right, ✗ wrong", "Questions it gets wrong"],
  scores: ["right", "wrong", "✓ right (score 1), ✗ wrong (score 0)", "Questions it gets wrong"],
  agreement: ["the last answer", "another answer", "✓ the answer of the last round, ✗ another", "Questions it answers otherwise"],
  graded: ["a full score", "less than a full score", "filled by its score, in full for a score of 1", "Questions below a full score"],
};
export const scaleOf = ({ scale }) => SCALES[scale] ?? SCALES.gold;
const known = (value) => value !== null && value !== undefined;
export const verdict = (value, { scale }) => (!known(value) || scale === "graded" ? "" : value >= 1 ? "right" : "wrong");

export function cell(value, record, here) {
  const filled = known(value) && record.scale === "graded" ? el("i", {}) : null;
  if (filled) filled.style.height = `${100 * value}%`;
  const sign = { right: "✓", wrong: "✗" }[verdict(value, record)] ?? "·";
  return el("span", { class: `cell ${verdict(value, record)}${here ? " stop" : ""}` }, filled, filled ? "\u00a0" : sign);
}

export function chip(value, record) {
  const said = verdict(value, record);
  const [full, less] = scaleOf(record);
  const text = !known(value) ? "not scored" : !said ? `${record.metric} ${percent(value)}` : said === "right" ? `✓ ${full}` : `✗ ${less}`;
  return el("span", { class: `chip ${said}` }, text);
}

// What was typed on a page that has been left since is let go.
export function debounce(work, wait) {
  let timer = 0;
  return (event) => {
    const typedAt = location.search;
    clearTimeout(timer);
    timer = setTimeout(() => event.target.isConnected && location.search === typedAt && work(event), wait);
  };
}

// A long text scrolls by itself, so the keyboard must reach it.
export const longText = (tag, class_, text, most = 500) =>
  el(tag, { class: class_, dir: "auto", tabindex: text.length > most ? "0" : null }, text);
