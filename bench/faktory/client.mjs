// npm's faktory-worker: `client.mjs push JOBS KEYS` or `client.mjs work SLOTS`. A job of its work prints
// `start`, `end` or `fail` with its number and the time.
import { writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import faktory from 'faktory-worker';

const [what, count, keys] = process.argv.slice(2);
const failed = new Set();

function say(event, n) {
  const seconds = (performance.timeOrigin + performance.now()) / 1000;
  writeSync(1, `${event} ${n} ${seconds.toFixed(6)}\n`);
}

function job(client, n) {
  const job = client.job('Sync', n);
  if (n % 5 === 0) {
    job.queue = 'ordered';
    job.custom = { seriatim: { key: `key-${(n / 5) % keys}`, score: n } };
  }
  return job.toJSON();
}

async function push() {
  const client = await faktory.connect();
  for (let n = 0; n < count; n += 1000) {
    const numbers = Array.from({ length: Math.min(1000, count - n) }, (_, i) => n + i);
    const rejected = await client.pushBulk(numbers.map((n) => job(client, n)));
    if (Object.keys(rejected).length > 0) throw new Error(JSON.stringify(rejected));
  }
  await client.close();
}

faktory.register('Sync', async (n) => {
  say('start', n);
  await sleep(n % 485 === 0 ? 1000 : 5);
  if ([7, 10].includes(n % 50) && !failed.has(n)) {
    failed.add(n);
    say('fail', n);
    throw new Error('the first try fails');
  }
  say('end', n);
});

if (what === 'push') await push();
else await faktory.work({ queues: ['ordered', 'default'], concurrency: Number(count) });
