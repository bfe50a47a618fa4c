// kill -9, cancel and a dying libvirtd at each step of an instant restore: before the VM runs nothing is left of it, from
// then on it ends independent of the archive, which stays what it was.
import { createHash } from 'node:crypto';
import { readFileSync, rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { INSTANT_STEPS } from '../../agent/src/workflows/restore/instant/instant-restore.ts';
import { few } from '../lab/few.ts';
import { Guest } from '../lab/guest.ts';
import { run, waitFor } from '../lab/run.ts';
import { AgentAlone, fileOf, INTERRUPTED, momentsOf, type Picture } from './agent-alone.ts';

let alone: AgentAlone;
let guest: Guest;
let before: Picture;
let archive: { filename: string; path: string };
let archiveHash: string;

const hashOf = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');

/** Two layers a disk, so that the chain of the archive is one. */
beforeAll(async () => {
  alone = await AgentAlone.start();
  guest = await alone.world.defineTiny({ dataDisks: [{ files: { hello: 'world' } }, {}] });
  await alone.world.node.virsh('snapshot-create-as', guest.name, 's1', '--disk-only');
  const { vda } = await guest.disks();
  await run(['qemu-io', '-f', 'qcow2', '-c', 'write -P 7 40M 8M', vda!]);
  const operation = await alone.ended(await alone.startBackup(guest));
  expect(operation.error).toBeUndefined();
  archive = fileOf(operation);
  archiveHash = hashOf(archive.path);
  before = await alone.picture(guest);
});
afterAll(() => alone?.stop());

async function expectClean(): Promise<void> {
  expect(await alone.picture(guest)).toEqual(before);
  expect(hashOf(archive.path)).toBe(archiveHash);
}

const restore = (bandwidth = 0n) =>
  alone.startRestore(archive.filename, {
    poolId: alone.world.node.pool(1).uuid,
    instant: true,
    bandwidth,
  });

interface Result {
  name: string;
  disks: { path: string; target_dev: string }[];
}

/** The VM of an operation that succeeded runs on disks of its own; it is removed then. */
async function expectIndependent(operation: Operation): Promise<void> {
  expect(operation).toMatchObject({ state: OperationState.SUCCEEDED, error: undefined });
  const { name, disks } = JSON.parse(operation.resultJson) as Result;
  const copy = new Guest(alone.world.node, name);
  for (const xml of [await copy.xml(), await copy.xml(true)]) expect(xml).not.toContain(archive.filename);
  expect(await copy.xml(true)).not.toContain('<backingStore');
  if ((await copy.state()) !== 'shut off') await copy.destroy();
  const { vda } = await guest.disks();
  for (const { path, target_dev: target } of disks) {
    await run(['qemu-img', 'check', '-q', path]);
    const { stdout } = await run(['qemu-img', 'info', '--output=json', path]);
    expect(JSON.parse(stdout)).not.toHaveProperty('backing-filename');
    if (target === 'vda') await run(['qemu-io', '-r', '-f', 'qcow2', '-c', 'read -P 7 40M 8M', path]);
  }
  expect(vda).toBeDefined();
  await alone.world.node.virsh('undefine', name);
  for (const { path } of disks) rmSync(path);
}

/** Waits until the archive is held by nobody: it can be deleted or extended again. */
async function expectUnlocked(): Promise<void> {
  const operationId = newId();
  const file = { poolId: alone.world.node.pool(1).uuid, filename: archive.filename };
  await alone.backups.verify({ operationId, file, fileId: newId() });
  expect((await alone.ended(operationId)).error).toBeUndefined();
}

const beforeTheVmRuns = momentsOf(INSTANT_STEPS.filter(step => step !== 'pull'));
const whilePulling = ['pull.before', 'pull.mid', 'pull.after'];

describe('kill -9 of the agent', () => {
  test.each(beforeTheVmRuns)('at %s leaves nothing', async moment => {
    const operation = await alone.killedAt(`restore.${moment}`, () => restore());
    expect(operation).toMatchObject(INTERRUPTED);
    await expectClean();
  });

  test.each(whilePulling)('at %s: the pull goes on', async moment => {
    await expectIndependent(
      await alone.killedAt(`restore.${moment}`, () => restore(moment === 'pull.mid' ? 1_000_000n : 0n)),
    );
    await expectClean();
    await expectUnlocked();
  });

  test('and the VM is switched off before the agent is back: qemu-img ends it', async () => {
    await alone.arm('restore.pull.before=kill');
    const id = await restore();
    await alone.died();
    const domains = (await alone.world.node.virsh('list', '--name')).split('\n').filter(Boolean);
    for (const name of domains) await alone.world.node.virsh('destroy', name);
    expect(domains).toHaveLength(1);
    await alone.up();
    await expectIndependent(await alone.ended(id));
    await expectClean();
  });
});

describe('cancel', () => {
  test.each(few(beforeTheVmRuns, beforeTheVmRuns.at(-1)!))('at %s leaves nothing', async moment => {
    const operation = await alone.canceledAt(`restore.${moment}`, () => restore());
    expect(operation.state).toBe(OperationState.CANCELED);
    await expectClean();
  });

  test('is refused when the VM runs', async () => {
    const file = alone.pauseFile('cancel-pull');
    await alone.arm(`restore.pull.before=pause:${file}`);
    const id = await restore();
    await alone.whilePaused(file, async () => {
      await expect(alone.operations.cancel({ id })).rejects.toThrow(/point where it can be/);
      const deletion = { operationId: newId(), fileId: newId() };
      const ref = { poolId: alone.world.node.pool(1).uuid, filename: archive.filename };
      await expect(alone.backups.delete({ ...deletion, file: ref })).rejects.toThrow(/used|busy|held/i);
    });
    await expectIndependent(await alone.ended(id));
    await expectClean();
  });
});

test('libvirtd is killed and restarted while the data are pulled in', async () => {
  await alone.arm('');
  const id = await restore(4_000_000n);
  await waitFor(
    'the start of the VM',
    async () => (await alone.operations.get({ id })).resultJson !== '',
    120_000,
    50,
  );
  await alone.world.node.killLibvirtd();
  await alone.world.node.startLibvirtd();
  await expectIndependent(await alone.ended(id));
  await expectClean();
});
