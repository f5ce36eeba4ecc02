// BullMQ with 50 jobs at once, its best here; finished jobs are removed.
import { Queue, Worker } from 'bullmq';
import { args, batches, counter, from32, rate, report } from './common.mjs';

const { url, jobs } = args();
const { hostname: host, port } = new URL(url);
const connection = { host, port: Number(port) };
const queue = new Queue('bullmq-bench', { connection });
await queue.obliterate({ force: true });
const opts = { removeOnComplete: true };
const push_per_s = await rate(jobs, async () => {
  for (const batch of batches(jobs)) {
    await queue.addBulk(batch.map(() => ({ name: 'blank', data: {}, opts })));
  }
});
const { all, did } = counter(jobs);
const drain_per_s = await rate(jobs, async () => {
  const worker = new Worker('bullmq-bench', async () => {}, { connection, concurrency: 50 });
  worker.on('completed', () => did(1));
  await all;
  await worker.close();
});
const single = Math.min(jobs, 20000);
const push_single_32_per_s = await rate(single, () => from32(single, () => queue.add('blank', {}, opts)));
await queue.obliterate({ force: true });
report('BullMQ 6.7.0', 'concurrency 50', { push_per_s, drain_per_s, push_single_32_per_s });
