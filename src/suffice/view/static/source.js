// Where data comes from: the server that shows a record, or the files of a bundle.
import { bundled } from "./bundle.js";

export const isBundle = "bundle" in document.documentElement.dataset;

export class NotReady extends Error {}

async function ask(path, query, signal) {
  const wanted = Object.entries(query || {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const words = wanted.length ? `?${new URLSearchParams(wanted)}` : "";
  const reply = await fetch(`api/${path}${words}`, { signal });
  if (reply.ok) return reply;
  const told = (await reply.json().catch(() => null))?.error?.message ?? `the server answered ${reply.status}`;
  throw reply.status === 503 ? new NotReady(told) : new Error(told);
}

const json = async (path, query, signal) => (await ask(path, query, signal)).json();

const served = {
  record: (split, signal) => json("record", { split }, signal),
  questions: (query, signal) => json("questions", query, signal),
  question: (id, query, signal) => json(`question/${encodeURIComponent(id)}`, query, signal),
  whatIf: (query, signal) => json("what-if", query, signal),
  compare: (query, signal) => json("compare", query, signal),
  promises: (signal) => json("promises", {}, signal),
  arrived: (signal) => json("arrived", {}, signal),
  chart: async (query, signal) => (await ask("chart", query, signal)).text(),
};

export const source = isBundle ? bundled() : served;

// While something is being measured it is asked for again.
export async function patiently(work, signal, waiting) {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof NotReady) || signal.aborted) throw error;
      waiting(error.message);
      await new Promise((resolve) => setTimeout(resolve, 700));
      if (signal.aborted) throw error;
    }
  }
}
