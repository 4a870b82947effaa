// A loop of your own that `suffice serve` tells when it has seen enough: node examples/loop.ts [URL]
// Node 22.18 or newer runs it as it is, 22.6 or newer with --experimental-strip-types.
type Loop = { id: string };
type Decision = { action: "stop" | "continue"; reason: string; done: boolean };
type End = { answer: string; answer_round: number; stopped_by: string };

const base = process.argv[2] ?? "http://127.0.0.1:8642";
const token = process.env.SUFFICE_TOKEN ?? "";

// Sent again where the connection broke: a round has its number, so none is observed twice.
async function post<Reply>(path: string, body: object): Promise<Reply> {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${token}` };
  for (let attempt = 1; ; attempt++) {
    const sent = fetch(base + path, { method: "POST", headers, body: JSON.stringify(body) });
    const reply = await sent.catch((error: unknown) => (attempt < 4 ? null : Promise.reject(error)));
    const told = await reply?.json().catch(() => null);
    if (reply?.ok && told) return told as Reply;
    if (attempt >= 4 || (reply && reply.status < 500 && reply.status !== 429))
      throw new Error(`${reply?.status}: ${told?.error.message ?? "no reply"}`);
    await new Promise((resume) => setTimeout(resume, 200 * 2 ** attempt));
  }
}

// what stands for your search and your model
const found = [["Ibsen died in Oslo."], ["Ibsen was born in Skien."], ["Skien is a town in Norway."]];
const answers = ["Oslo", "Skien", "Skien", "Skien"];
const search = async (round: number): Promise<string[]> => found[round - 1] ?? [];
const answer = async (round: number): Promise<string> => answers[round - 1] ?? "Skien";

const question = { question: "Where was Ibsen born?", question_type: "place" };
const loop = await post<Loop>("/v1/loops", question);
for (let round = 1, done = false; !done && round <= 10; round++) {
  const [passages, text] = [await search(round), await answer(round)];
  const told = await post<Decision>(`/v1/loops/${loop.id}/rounds`, { round, passages, answer: text });
  console.log(`round ${round}: ${told.action}, ${told.reason}`);
  done = told.done;
}
const end = await post<End>(`/v1/loops/${loop.id}/end`, {});
console.log(`${end.answer} (round ${end.answer_round}, stopped by ${end.stopped_by})`);
export {}; // a module, for its await
