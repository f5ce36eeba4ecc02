// pg-boss at its fastest settings: five workers, batches of 1,000, fetching on while they are full. With
// keys: its policy of strict order for each key.
import { PgBoss } from 'pg-boss';
import { args, batches, counter, from32, rate, report } from './common.mjs';

const { url, jobs, keys } = args();
const boss = new PgBoss({ connectionString: url, schema: 'pgboss_bench', supervise: false, schedule: false, max: 20 });
boss.on('error', (error) => { console.error(String(error)); process.exit(1); });
await boss.start();
await boss.deleteQueue('blank').catch(() => {});
await boss.createQueue('blank', { policy: keys ? 'key_strict_fifo' : 'standard' });
const job = (n) => (keys ? { data: {}, singletonKey: `key-${n % keys}` } : { data: {} });
const push_per_s = await rate(jobs, async () => {
  for (const batch of batches(jobs)) await boss.insert('blank', batch.map(job));
});
const { all, did } = counter(jobs);
const options = { batchSize: 1000, localConcurrency: 5, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
const drain_per_s = await rate(jobs, async () => {
  await boss.work('blank', options, async (batch) => did(batch.length));
  await all;
  await boss.offWork('blank', { wait: true });
});
const single = Math.min(jobs, 20000);
const push_single_32_per_s = await rate(single, () => from32(single, (n) => boss.send('blank', {}, keys ? { singletonKey: `key-${n % keys}` } : {})));
await boss.deleteQueue('blank');
report('pg-boss 12.35.0', keys ? 'key_strict_fifo, batch 1000 × 5' : 'batch 1000 × 5, burst',
  { push_per_s, drain_per_s, push_single_32_per_s });
