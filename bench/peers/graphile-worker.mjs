// graphile-worker at its fastest settings: a local queue, and completions in batches. With keys: its
// named queues, which run one job at a time each.
import pg from 'pg';
import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import { args, batches, counter, from32, rate, report } from './common.mjs';

const { url, jobs, keys } = args();
const pool = new pg.Pool({ connectionString: url, max: 20 });
pool.on('error', (error) => { throw error; });
pool.on('connect', (client) => client.on('error', (error) => { throw error; }));
await pool.query('DROP SCHEMA IF EXISTS graphile_worker CASCADE');
const logger = new Logger(() => () => {});
const utils = await makeWorkerUtils({ pgPool: pool, logger });
await utils.migrate();
const queueName = (n) => (keys ? `key-${n % keys}` : undefined);
const push_per_s = await rate(jobs, async () => {
  for (const batch of batches(jobs)) {
    await utils.addJobs(batch.map((n) => ({ identifier: 'blank', payload: {}, queueName: queueName(n) })));
  }
});
const { all, did } = counter(jobs);
const worker = { concurrentJobs: 24, completeJobBatchDelay: 0, failJobBatchDelay: 0, localQueue: { size: 500 }, logger };
const drain_per_s = await rate(jobs, async () => {
  const runner = await run({ preset: { worker }, pgPool: pool, taskList: { blank: () => did(1) }, noHandleSignals: true });
  await all;
  await runner.stop();
});
const single = Math.min(jobs, 20000);
const push_single_32_per_s = await rate(single, () => from32(single, () => utils.addJob('later', {})));
report('graphile-worker 0.18.0', `local queue 500, 24 at once${keys ? `, ${keys} named queues` : ''}`,
  { push_per_s, drain_per_s, push_single_32_per_s });
