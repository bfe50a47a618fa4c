/** What operations on layers hold while they wait for their turn, and when it comes. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { RemoveSnapshotRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import type { CallContext } from 'nice-grpc-common';
import { Faults } from '../operations/faults.ts';
import { Journal } from '../operations/journal.ts';
import { OperationRunner } from '../operations/runner.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { backupService } from './backup-service.ts';
import { snapshotService } from './snapshot-service.ts';

const domainId = newId();
let directory: string;
let journal: Journal;
let runner: OperationRunner;
let isActive: boolean;
/** Ends the operation that has the only place. */
let makeRoom: () => void;
/** What held the domain's power when the work of the operation began; null before. */
let powerHolder: string | undefined | null;

const ignore = () => log;
const log = { error: ignore, warn: ignore, info: ignore, debug: ignore, child: ignore } as unknown as Logger;
const call = { signal: new AbortController().signal } as CallContext;

/** The domain is asked whether it runs; any other question means that the work has begun, and ends it. */
function dependencies(): WorkflowDependencies {
  const begin = () => {
    powerHolder = runner.holderOf('power', domainId)?.operationId;
    throw new Error('the test has seen enough');
  };
  const domain = new Proxy(
    {},
    { get: (_, name) => (name === 'then' ? undefined : name === 'isActive' ? async () => isActive : begin) },
  );
  const libvirt = { domainByUuid: async () => domain, domain: begin };
  const known = { libvirt: () => libvirt as unknown as Libvirt, log };
  const other = { get: (_: unknown, name: string) => Reflect.get(known, name) ?? begin() };
  return new Proxy(known, other) as unknown as WorkflowDependencies;
}

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-queued-'));
  powerHolder = null;
  journal = new Journal(join(directory, 'journal.db'));
  runner = new OperationRunner({
    journal,
    log,
    undoEffect: async () => {},
    refuseCopies: async () => {},
    faults: Faults.parse(''),
    concurrentOperations: 1,
  });
  const { promise, resolve } = Promise.withResolvers<void>();
  makeRoom = resolve;
  runner.start({
    id: newId(),
    kind: 'verify',
    request: {},
    entities: [],
    locks: [],
    cancellable: false,
    workflow: async context => {
      await promise;
      context.commit();
    },
  });
});
afterEach(() => {
  runner.close();
  journal.close();
  rmSync(directory, { recursive: true });
});

const starts: [string, (id: string) => Promise<Operation>][] = [
  [
    'a backup',
    async id =>
      (await backupService(runner, dependencies()).start(
        StartBackupRequest.fromPartial({ operationId: id, domainId, fileId: newId() }),
        call,
      )) as Operation,
  ],
  [
    'the deletion of a saved state',
    async id =>
      (await snapshotService(runner, dependencies()).remove(
        RemoveSnapshotRequest.fromPartial({ operationId: id, domainId, snapshotId: newId() }),
        call,
      )) as Operation,
  ],
];

async function ended(id: string): Promise<Operation> {
  for await (const { operation } of runner.watch(0, id, AbortSignal.timeout(240_000)))
    if (operation!.state !== OperationState.RUNNING) return operation!;
  throw new Error('the stream ended before the operation');
}

test.each(starts)('%s of a VM that is off leaves its power alone until its turn comes', async (_, start) => {
  isActive = false;
  const id = newId();
  await start(id);
  expect(runner.holderOf('domain', domainId)?.operationId).toBe(id);
  expect(runner.holderOf('power', domainId)).toBeUndefined();
  makeRoom();
  await ended(id);
  expect(powerHolder).toBe(id);
  expect(runner.holderOf('power', domainId)).toBeUndefined();
});

test.each(starts)('%s holds the power of a VM that was shut down meanwhile', async (_, start) => {
  isActive = true;
  const id = newId();
  await start(id);
  isActive = false;
  makeRoom();
  await ended(id);
  expect(powerHolder).toBe(id);
});

test.each(starts)('%s leaves the power of a VM alone that was started meanwhile', async (_, start) => {
  isActive = false;
  const id = newId();
  await start(id);
  isActive = true;
  makeRoom();
  await ended(id);
  expect(powerHolder).toBeUndefined();
});

test.each(starts)(
  '%s is refused while the VM is being started, at the request or at its turn',
  async (_, start) => {
    isActive = false;
    const id = newId();
    await start(id);
    const release = runner.hold('power', [{ kind: 'power', id: domainId, mode: 'exclusive' }]);
    makeRoom();
    expect((await ended(id)).error).toMatchObject({ msgKey: 'domain_busy', params: { kind: 'power' } });
    expect(runner.holderOf('domain', domainId)).toBeUndefined();
    await expect(start(newId())).rejects.toMatchObject({ msgKey: 'domain_busy' });
    release();
  },
);
