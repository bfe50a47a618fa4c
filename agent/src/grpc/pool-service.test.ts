import { randomUUID } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { MiB } from '@virtkeep/shared/units';
import type { CallContext } from 'nice-grpc-common';
import type { OperationRunner, StartOptions } from '../operations/runner.ts';
import { samplePool } from '../pools/sample-pool.ts';
import type { OperationContext } from '../workflows/context.ts';
import { type PoolServiceOptions, poolService } from './pool-service.ts';

/** A pool whose mount comes and goes, and a runner that runs what is started at once. */
class Scan {
  readonly pool = samplePool('usb', { id: randomUUID() });
  /** How often the directory was read. */
  reads = 0;
  results: unknown[] = [];
  whileRead = () => {};
  files: BackupFile[] = [];
  readonly #service: ReturnType<typeof poolService>;

  constructor() {
    const context = {
      step: (_name: string, work: () => unknown) => work(),
      signal: new AbortController().signal,
      warn: () => {},
      commit: (result: unknown) => void this.results.push(result),
    } as unknown as OperationContext;
    const options = {
      inventory: {
        complete: async () => {},
        pool: () => ({ record: this.pool }),
        refreshFiles: async () => {
          this.reads += 1;
          this.whileRead();
        },
      },
      backupFiles: {
        found: () => Object.assign(this.files, { count: this.files.length, damaged: [] }),
        skipped: () => [],
        hasLookedAt: () => this.reads > 0,
      },
      runner: {
        replay: () => undefined,
        start: ({ workflow }: StartOptions) => workflow(context),
      } as unknown as OperationRunner,
      workflows: { pools: async () => [this.pool], nodeName: 'one' },
    } as unknown as PoolServiceOptions;
    this.#service = poolService(options);
  }

  async run({ filesApart = false } = {}): Promise<void> {
    const request = { operationId: randomUUID(), poolId: this.pool.id, thorough: false, filesApart };
    await this.#service.scan(request, { signal: new AbortController().signal } as CallContext);
  }

  /** How many files came in each piece. */
  async pieces(): Promise<number[]> {
    const told: number[] = [];
    const { signal } = new AbortController();
    const request = { poolId: this.pool.id };
    for await (const { files } of this.#service.streamFiles(request, { signal } as CallContext))
      told.push(files?.length ?? 0);
    return told;
  }
}

const file = (name: string) => BackupFile.fromPartial({ filename: name, path: `/p/backups/${name}` });

test('a pool is scanned where it is mounted', async () => {
  const scan = new Scan();
  await scan.run();
  expect([scan.reads, scan.results]).toEqual([1, [{ $case: 'scanPool', value: { files: [] } }]]);
});

test('a pool of devices alone has no files, and its scan succeeds as that of all pools', async () => {
  const scan = new Scan();
  Object.assign(scan.pool, { kind: 'lvm', hasDirectory: false, mounted: false });
  await scan.run();
  expect(scan.results).toEqual([{ $case: 'scanPool', value: { files: [] } }]);
});

test('what is not mounted is not scanned: its files are not gone', async () => {
  const scan = new Scan();
  scan.pool.mounted = false;
  await expect(scan.run()).rejects.toMatchObject({ msgKey: 'pool_not_mounted' });
  expect([scan.reads, scan.results]).toEqual([0, []]);
});

test('a scan tells nothing of a pool whose mount has gone meanwhile', async () => {
  const scan = new Scan();
  scan.whileRead = () => {
    scan.pool.mounted = false;
  };
  await expect(scan.run()).rejects.toMatchObject({ msgKey: 'pool_not_mounted' });
  expect([scan.reads, scan.results]).toEqual([1, []]);
});

test('files that are asked for apart are counted by the result, and told in pieces, as often as they are asked for', async () => {
  const scan = new Scan();
  scan.files = Array.from({ length: 250 }, (_, at) => file(`${at}.tar`));
  await scan.run({ filesApart: true });
  expect(scan.results).toEqual([{ $case: 'scanApart', value: { count: 250 } }]);
  expect(await scan.pieces()).toEqual([100, 100, 50]);
  expect(await scan.pieces()).toEqual([100, 100, 50]);
  expect(scan.reads).toBe(1);
  for (const at of [0, 3]) scan.files[at]!.manifestJson = ' '.repeat(4 * MiB);
  expect(await scan.pieces()).toEqual([1, 3, 100, 100, 46]);
});

test('a pool that was not looked at since the agent started is, before its files are told', async () => {
  const scan = new Scan();
  scan.whileRead = () => {
    scan.files = [file('a.tar')];
  };
  expect(await scan.pieces()).toEqual([1]);
});

test('nothing is told of a pool that is not there', async () => {
  const scan = new Scan();
  await scan.run({ filesApart: true });
  scan.pool.mounted = false;
  await expect(scan.pieces()).rejects.toMatchObject({ msgKey: 'pool_not_mounted' });
});
