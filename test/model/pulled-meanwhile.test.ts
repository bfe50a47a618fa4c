/** What becomes of a VM that runs from its archive, and of its images, while nobody looks: the pull ends when all data are in, and not before. */
import { chmodSync, existsSync, renameSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { readImageHeader } from '../../agent/src/disks/index.ts';
import { stripBackingStore } from '../../agent/src/domain-xml/index.ts';
import { PATIENCE_MS } from '../../agent/src/images/index.ts';
import { ActiveOperation } from '../../agent/src/operations/active.ts';
import { Journal } from '../../agent/src/operations/journal.ts';
import type { Answer, Thing, Use } from '../../agent/src/other-nodes.ts';
import type { Effect } from '../../agent/src/workflows/effect.ts';
import { instantRestoreWorkflow } from '../../agent/src/workflows/restore/instant/instant-restore.ts';
import { undoEffects } from '../../agent/src/workflows/undo/recover.ts';
import { run } from '../lab/run.ts';
import { skipPauses } from './pauses.ts';
import type { Machine } from './scripted-machine.ts';
import { makeBackup } from './stories/perform.ts';
import { makeVm } from './stories/vm.ts';
import { ALONE, silent, World } from './world.ts';

skipPauses();

type Pull = Extract<Effect, { type: 'instant_pull' }>;

let world: World;
/** Off, and nothing is pulled in yet. */
let machine: Machine;
let pull: Pull;
/** What its disks read. */
let content: string[];
/** What another node has, where it has something. */
let elsewhere: Answer;
/** What is said of the VM, where it is something else. */
let definedElsewhere: Answer | undefined;
let warnings: string[];

beforeEach(async () => {
  world = new World();
  elsewhere = { kind: 'unused' };
  [definedElsewhere, warnings] = [undefined, []];
  const original = await makeVm(world, { running: false });
  await original.write(0, 1);
  content = await original.view();
  const backup = await makeBackup(world, original.machine.uuid);
  chmodSync(backup.path, 0o644);
  const request = {
    operationId: newId(),
    file: backup.ref,
    fileId: backup.id,
    domainId: newId(),
    instant: true,
  };
  pull = await started(StartRestoreRequest.fromPartial(request));
  machine = world.scripted.machines.get(request.domainId)!;
  world.scripted.powerOff(machine);
});
afterEach(() => world.remove());

const dependencies = () => ({
  ...world.dependencies,
  otherNodes: {
    whoUses: async (things: readonly Thing[]) =>
      things.map(({ kind }) => (kind === 'domain' && definedElsewhere) || elsewhere),
  },
});

/** The restore up to its pull, of which nobody hears any more. */
async function started(request: StartRestoreRequest): Promise<Pull> {
  const journal = new Journal(join(world.root, 'journal.db'));
  const message = Operation.fromPartial({
    ...{ id: request.operationId, kind: 'restore', state: OperationState.RUNNING, created: new Date() },
  });
  const record = { message, fingerprint: '', locks: [], committed: false };
  journal.insertOperation(record);
  const faults = { active: false, reach: async () => {}, middle: () => undefined } as never;
  const undoEffect = undoEffects(world.dependencies);
  const operation = new ActiveOperation(record, {
    ...{ journal, undoEffect, faults, log: silent, changed: () => {} },
  });
  const context = operation.context(ALONE);
  const step: typeof context.step = (name, work) =>
    name === 'pull' ? Promise.reject(new Error('cut off')) : context.step(name, work);
  await expect(instantRestoreWorkflow(world.dependencies, request)({ ...context, step })).rejects.toThrow(
    'cut off',
  );
  const effects = journal.effects(request.operationId).map(({ effect }) => effect);
  journal.close();
  return effects.find(effect => effect.type === 'instant_pull')!;
}

/** The next agent finds the effect. @returns why it cannot be undone; '' when it is */
const taken = (undo = undoEffects(dependencies())) =>
  undo(
    pull,
    AbortSignal.timeout(60_000),
    text => warnings.push(text),
    () => {},
  ).then(
    () => '',
    error => String(error.params?.reason ?? error),
  );

const paths = () => pull.disks.map(({ overlayPath }) => overlayPath);
const backings = () => Promise.all(paths().map(async path => (await readImageHeader(path)).backingFile));

/** What another node tells of the VM. */
const use = (active: boolean): Use => ({
  ...{ nodeName: 'n2', domainId: pull.domainId, domainName: 'vm', active, lastRanHere: true },
});

async function expectWhole(files = paths()): Promise<void> {
  expect(await Promise.all(files.map(async path => (await readImageHeader(path)).backingFile))).toEqual([
    undefined,
    undefined,
  ]);
  expect(await Promise.all(files.map(path => world.content(path)))).toEqual(content);
}

test('an image that is out of sight is not pulled in, and the definition keeps the way to the archive', async () => {
  const away = join(world.root, 'away.qcow2');
  renameSync(paths()[1]!, away);
  expect(await taken()).toContain(`${paths()[1]} is not there`);
  expect(machine.config).toContain(pull.archivePath);
  renameSync(away, paths()[1]!);
  expect(await taken()).toBe('');
  expect(machine.config).not.toContain(pull.archivePath);
  await expectWhole();
});

test.each([true, false])(
  'nor is one that was moved, with its chain in the definition: %j',
  async hasChain => {
    const moved = join(world.pool, 'moved.qcow2');
    renameSync(paths()[1]!, moved);
    machine.config = machine.config!.replaceAll(paths()[1]!, moved);
    if (!hasChain) machine.config = stripBackingStore(machine.config);
    const before = machine.config;
    expect(await taken()).toContain(`${moved} still needs the archive`);
    expect(machine.config).toBe(before);
  },
);

test('one that was moved is pulled in when its VM runs', async () => {
  const moved = join(world.pool, 'moved.qcow2');
  renameSync(paths()[1]!, moved);
  machine.config = machine.config!.replaceAll(paths()[1]!, moved);
  const original = join(world.pool, 'vda.qcow2');
  world.scripted.pull = async top => {
    await run(['qemu-img', 'convert', '-O', 'qcow2', original, top]);
  };
  await world.scripted.start(machine);
  expect(await taken()).toBe('');
  expect([machine.live, machine.config].filter(xml => xml!.includes(pull.archivePath))).toEqual([]);
  await expectWhole([paths()[0]!, moved]);
});

test('the images of a VM that is not here are pulled in', async () => {
  world.scripted.machines.delete(machine.uuid);
  expect(await taken()).toBe('');
  await expectWhole();
});

test.each(['gone', 'off'])('not while it runs on another node and is %s here', async here => {
  if (here === 'gone') world.scripted.machines.delete(machine.uuid);
  const before = await backings();
  elsewhere = { kind: 'used', by: use(true) };
  expect(await taken()).toContain('the node n2');
  expect(await backings()).toEqual(before);
  elsewhere = { kind: 'used', by: use(false) };
  expect(await taken()).toBe('');
  await expectWhole();
});

test('nor while nobody knows, of a VM that is not here; for one that is, its locks are enough', async () => {
  world.poolRecord.shared = true;
  elsewhere = { kind: 'unknown', reason: 'n2 was not heard' };
  world.scripted.machines.delete(machine.uuid);
  const before = await backings();
  expect(await taken()).toContain('n2 was not heard');
  expect(await backings()).toEqual(before);
  world.scripted.machines.set(machine.uuid, machine);
  expect(await taken()).toBe('');
  await expectWhole();
});

test('a VM that is gone with its images leaves nothing to do', async () => {
  world.scripted.machines.delete(machine.uuid);
  for (const path of paths()) rmSync(path);
  expect(await taken()).toBe('');
  expect(paths().filter(path => existsSync(path))).toEqual([]);
});

test('one that another node has, with images that are not here, is not gone', async () => {
  world.scripted.machines.delete(machine.uuid);
  for (const path of paths()) rmSync(path);
  elsewhere = { kind: 'used', by: use(false) };
  expect(await taken()).toContain('the VM is on the node n2');
  world.poolRecord.shared = true;
  elsewhere = { kind: 'unknown', reason: 'n2 was not heard' };
  expect(await taken()).toContain('n2 was not heard');
});

describe('one that is gone with its images, while a node is not heard', () => {
  beforeEach(() => {
    world.poolRecord.shared = true;
    elsewhere = { kind: 'unknown', reason: 'n2 was not heard' };
    world.scripted.machines.delete(machine.uuid);
  });

  /** Tried twice by the same agent, with so much time between. */
  async function takenAfter(passedMs: number, meanwhile = () => {}): Promise<string> {
    const undo = undoEffects(dependencies());
    expect(await taken(undo)).toContain('n2 was not heard');
    meanwhile();
    const nowMs = performance.now();
    const clock = jest.spyOn(performance, 'now').mockImplementation(() => nowMs + passedMs);
    try {
      return await taken(undo);
    } finally {
      clock.mockRestore();
    }
  }

  test.each([
    ['in their pool', (path: string) => path],
    ['in a directory that is gone with them', (path: string) => join(world.pool, 'vm', basename(path))],
  ])('%s, is waited for, and then given up with a warning that names the archive', async (_, place) => {
    for (const path of paths()) rmSync(path);
    pull.disks = pull.disks.map(disk => ({ ...disk, overlayPath: place(disk.overlayPath) }));
    expect(await takenAfter(PATIENCE_MS - 1_000)).toContain('n2 was not heard');
    expect(warnings).toEqual([]);
    expect(await takenAfter(PATIENCE_MS)).toBe('');
    expect(warnings).toEqual([expect.stringContaining(pull.archivePath)]);
    for (const text of [...paths(), 'n2 was not heard']) expect(warnings[0]).toContain(text);
  });

  test('is not gone when a node that is heard has it', async () => {
    for (const path of paths()) rmSync(path);
    const isHeard = () => {
      definedElsewhere = { kind: 'used', by: use(false) };
    };
    expect(await takenAfter(2 * PATIENCE_MS, isHeard)).toContain('the VM is on the node n2');
    expect(warnings).toEqual([]);
  });

  test('is waited for as long as an image of it, or the directory of one, may be there', async () => {
    rmSync(paths()[0]!);
    expect(await takenAfter(2 * PATIENCE_MS)).toContain('n2 was not heard');
    renameSync(world.pool, `${world.pool}.away`);
    expect(await takenAfter(2 * PATIENCE_MS)).toContain('n2 was not heard');
    renameSync(`${world.pool}.away`, world.pool);
    expect(warnings).toEqual([]);
  });
});
