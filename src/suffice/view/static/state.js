// What is looked at stands in the address, so that links and the back button work.
export const state = () => Object.fromEntries(new URLSearchParams(location.search));

export function address(changes, { keep = [] } = {}) {
  const now = state();
  const kept = Object.fromEntries(keep.filter((name) => name in now).map((name) => [name, now[name]]));
  const wanted = Object.entries({ ...kept, ...changes }).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return `?${new URLSearchParams(wanted)}`;
}

let render = () => {};
export const whenChanged = (work) => {
  render = work;
  addEventListener("popstate", () => work());
};

export function go(to, { replace = false, quietly = false } = {}) {
  if (to === location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  if (!quietly) render();
}

// Links within the page change the address without loading it anew.
addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-go]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(link.getAttribute("href"));
});
