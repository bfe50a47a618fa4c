/** What becomes of a VM while nothing of it is read: before its turn, in a hook, and for hours while its archive gets another form. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import type { CallContext } from 'nice-grpc-common';
import { openArchive } from '../../agent/src/archive/index.ts';
import { backupService } from '../../agent/src/grpc/backup-service.ts';
import type { Faults } from '../../agent/src/operations/faults.ts';
import { Journal } from '../../agent/src/operations/journal.ts';
import { OperationRunner } from '../../agent/src/operations/runner.ts';
import type { OtherNodes } from '../../agent/src/other-nodes.ts';
import { refuseStaleCopies } from '../../agent/src/workflows/domain/stale-copy.ts';
import { undoEffects } from '../../agent/src/workflows/undo/recover.ts';
import { skipPauses } from './pauses.ts';
import { plugDisk } from './scripted-machine.ts';
import { hashOfFile } from './stories/backup.ts';
import { type MadeBackup, makeBackup, makeState } from './stories/perform.ts';
import { makeVm, type Vm } from './stories/vm.ts';
import { silent, World } from './world.ts';

skipPauses();

let world: World;
let vm: Vm;
let base: MadeBackup;
let journal: Journal;
let runner: OperationRunner;
/** Runs on another node. */
let isElsewhere: boolean;
/** What happens at a point of the backup. */
let at: Record<string, () => unknown>;

const otherNodes: OtherNodes = {
  whoUses: async things =>
    things.map(thing =>
      isElsewhere && thing.kind === 'domain'
        ? { kind: 'used', by: { nodeName: 'n2', domainId: thing.id, domainName: 'vm', active: true } }
        : { kind: 'unused' },
    ),
};

beforeEach(() => {
  [world, isElsewhere, at] = [new World(), false, {}];
  const reach = async (_kind: string, step: string, when: string) => void (await at[`${step}.${when}`]?.());
  journal = new Journal(join(world.root, 'runner.db'));
  const { libvirt, nodeName } = world.dependencies;
  runner = new OperationRunner({
    ...{ journal, log: silent, concurrentOperations: 1 },
    undoEffect: undoEffects(world.dependencies),
    refuseCopies: (ids, signal) => refuseStaleCopies({ libvirt, otherNodes, nodeName }, ids, signal),
    faults: { active: false, reach, middle: () => undefined } as unknown as Faults,
  });
});
afterEach(() => {
  runner.close();
  journal.close();
  world.remove();
});

async function made(running: boolean): Promise<void> {
  vm = await makeVm(world, { running, agent: true });
  await vm.write(0, 1);
  base = await makeBackup(world, vm.machine.uuid, { canBeIncremental: true });
  await vm.write(1, 2);
}

const holder = () => runner.holderOf('power', vm.machine.uuid)?.operationId;
const archives = () => readdirSync(world.backups).filter(name => !name.startsWith('.'));

/** An increment for which the archive is compressed. */
const extended = () => ended({ canBeIncremental: true, extend: base.ref, extendCompressed: true });

async function ended(options: Partial<StartBackupRequest>): Promise<Operation> {
  const ask = { operationId: newId(), domainId: vm.machine.uuid, fileId: newId() };
  const request = StartBackupRequest.fromPartial({ ...ask, ...options });
  const call = { signal: new AbortController().signal } as CallContext;
  const { id } = (await backupService(runner, world.dependencies).start(request, call)) as Operation;
  for await (const { operation } of runner.watch(0, id, AbortSignal.timeout(60_000)))
    if (operation!.state !== OperationState.RUNNING) return operation!;
  throw new Error('the stream ended before the operation');
}

async function consistency(): Promise<string> {
  const archive = await openArchive(`${base.path}.zst`, AbortSignal.timeout(60_000));
  await archive.close();
  return archive.manifest!.states.at(-1)!.consistency;
}

test('a VM that is off may be started, and is backed up as it runs', async () => {
  await made(false);
  const seen: unknown[] = [];
  at['convert.before'] = async () => {
    const release = runner.hold('power', [{ kind: 'power', id: vm.machine.uuid, mode: 'exclusive' }]);
    await world.scripted.start(vm.machine);
    release();
  };
  at['copy.before'] = () => seen.push(holder());
  expect(await extended()).toMatchObject({ state: OperationState.SUCCEEDED });
  expect([await consistency(), seen]).toEqual(['quiesced', [undefined]]);
});

test('one that was shut down is not started from when it is looked at again', async () => {
  await made(true);
  const seen: unknown[] = [];
  at['convert.after'] = () => world.scripted.powerOff(vm.machine);
  at['copy.before'] = () => seen.push(holder());
  const { id, state } = await extended();
  expect([state, await consistency(), seen]).toEqual([OperationState.SUCCEEDED, 'off', [id]]);
});

test('one that is just being started is refused, and its archive is as it was', async () => {
  await made(false);
  const former = hashOfFile(base.path);
  at['convert.after'] = () =>
    runner.hold('power', [{ kind: 'power', id: vm.machine.uuid, mode: 'exclusive' }]);
  expect((await extended()).error).toMatchObject({ msgKey: 'domain_busy', params: { kind: 'power' } });
  expect([hashOfFile(base.path), archives()]).toEqual([former, [base.ref.filename]]);
});

test('one that moved to another node is not backed up from the definition that it left behind', async () => {
  await made(true);
  const [former, tops] = [hashOfFile(base.path), vm.tops()];
  at['convert.after'] = () => {
    world.scripted.powerOff(vm.machine);
    isElsewhere = true;
  };
  expect((await extended()).error).toMatchObject({ msgKey: 'domain_elsewhere', params: { other: 'n2' } });
  expect([hashOfFile(base.path), archives(), vm.tops()]).toEqual([former, [base.ref.filename], tops]);
});

test('one that goes off before it is looked at is not started from then on', async () => {
  await made(true);
  const seen: unknown[] = [];
  at['check.before'] = () => world.scripted.powerOff(vm.machine);
  at['copy.before'] = () => seen.push(holder());
  const { id, state } = await ended({});
  expect([state, seen]).toEqual([OperationState.SUCCEEDED, [id]]);
});

test('one that goes off and is being started again before it is looked at is refused', async () => {
  await made(true);
  at['check.before'] = () => {
    world.scripted.powerOff(vm.machine);
    runner.hold('power', [{ kind: 'power', id: vm.machine.uuid, mode: 'exclusive' }]);
  };
  expect((await ended({})).error).toMatchObject({ msgKey: 'domain_busy', params: { kind: 'power' } });
});

test('one that others start while the hook runs is not copied as one that is off', async () => {
  await made(false);
  let isCopied = false;
  at['copy.before'] = () => {
    isCopied = true;
  };
  world.hooks = { run: async () => {} };
  const former = archives();
  at['hook.after'] = () => world.scripted.start(vm.machine);
  expect((await ended({})).error).toMatchObject({ msgKey: 'power_state_conflict' });
  expect([isCopied, archives()]).toEqual([false, former]);
});

test.each([{}, { canBeIncremental: true }])(
  'nor one that another node starts under its copy: %j',
  async options => {
    await made(false);
    const former = archives();
    at['copy.before'] = () => {
      isElsewhere = true;
    };
    expect((await ended(options)).error).toMatchObject({
      msgKey: 'domain_elsewhere',
      params: { other: 'n2' },
    });
    expect(archives()).toEqual(former);
  },
);

/** Others attach a disk at that point. @returns the files and disks as they are to be in the end */
async function attachedAt(point: string): Promise<{ files: unknown; tops: string[] }> {
  const path = await world.disk('vdc.qcow2');
  let isPlugged = false;
  world.scripted.reach = async reached => {
    if (reached !== point || isPlugged) return;
    isPlugged = true;
    const disk = `<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${path}'/>
      <target dev='vdc' bus='virtio'/></disk>`;
    plugDisk(vm.machine, true, [disk, 3]);
  };
  return { files: world.files(), tops: [...vm.tops(), path] };
}

const UNPLANNED = ['virDomainQemuAgentCommand.after', 'virDomainSnapshotCreateXML.before'];

describe('a disk that others attach after the look at the disks keeps no layer, and the VM no state', () => {
  test.each(UNPLANNED.flatMap(point => [{ point }, { point, canBeIncremental: true }]))(
    'of a backup: %j',
    async ({ point, ...options }) => {
      await made(true);
      const { files, tops } = await attachedAt(point);
      expect((await ended(options)).error).toMatchObject({ msgKey: 'power_state_conflict' });
      expect([vm.tops(), world.files(), vm.machine.states.size]).toEqual([tops, files, 1]);
    },
  );

  test.each(UNPLANNED)('of a state by hand: %s', async point => {
    await made(true);
    const { files, tops } = await attachedAt(point);
    await expect(makeState(world, vm.machine.uuid, 's')).rejects.toMatchObject({
      msgKey: 'power_state_conflict',
    });
    expect([vm.tops(), world.files(), vm.machine.states.size]).toEqual([tops, files, 1]);
  });

  test('of a backup whose agent does not hear that the state was made', async () => {
    await made(true);
    const { files, tops } = await attachedAt('virDomainSnapshotCreateXML.before');
    const plug = world.scripted.reach;
    world.scripted.reach = async point => {
      await plug(point);
      if (point === 'virDomainSnapshotCreateXML.after') throw new Error('no answer');
    };
    expect((await ended({})).error).toMatchObject({ msgKey: 'power_state_conflict' });
    expect([vm.tops(), world.files(), vm.machine.states.size]).toEqual([tops, files, 1]);
  });
});
