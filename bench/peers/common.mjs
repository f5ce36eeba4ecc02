// What the scripts share: arguments, clocks, and the line that they print.

/** URL, number of jobs, number of keys (0: none). */
export function args() {
  const [url, jobs, keys] = process.argv.slice(2);
  return { url, jobs: Number(jobs), keys: Number(keys) };
}

export const BATCH = 1000;

export function* batches(jobs) {
  for (let from = 0; from < jobs; from += BATCH) {
    yield Array.from({ length: Math.min(BATCH, jobs - from) }, (_, i) => from + i);
  }
}

/** Calls `done()` once it has been told of so many jobs. */
export function counter(jobs) {
  let left = jobs;
  let finish;
  const all = new Promise((resolve) => { finish = resolve; });
  return { all, did(count) { left -= count; if (left <= 0) finish(); } };
}

/** Jobs per second of `work`. */
export async function rate(jobs, work) {
  const started = performance.now();
  await work();
  return Math.round((jobs * 1000) / (performance.now() - started));
}

/** `jobs` calls of `push`, of which 32 are under way at a time. */
export async function from32(jobs, push) {
  let next = 0;
  const caller = async () => { while (next < jobs) await push(next++); };
  await Promise.all(Array.from({ length: 32 }, caller));
}

export function report(peer, settings, figures) {
  console.log(JSON.stringify({ peer, settings, ...figures }));
  process.exit(0);
}
