// kill -9 and other blows at each step of a restore: afterwards nothing half-restored is left, and the backup is whole.
import { createHash } from 'node:crypto';
import { readFileSync, rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { RESTORE_STEPS } from '../../agent/src/workflows/restore/restore.ts';
import { Guest } from '../lab/guest.ts';
import { run } from '../lab/run.ts';
import { AgentAlone, fileOf, INTERRUPTED, momentsOf, type Picture } from './agent-alone.ts';

let alone: AgentAlone;
let guest: Guest;
let before: Picture;
let archive: { filename: string; path: string };
let archiveHash: string;

const hashOf = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');

beforeAll(async () => {
  alone = await AgentAlone.start();
  guest = await alone.world.defineTiny({
    idle: true,
    dataDisks: [{ files: { hello: 'world' } }, { format: 'raw' }],
  });
  await alone.world.node.virsh('snapshot-create-as', guest.name, 's1', '--disk-only');
  const operation = await alone.ended(await alone.startBackup(guest, { compress: true }));
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

/** To the second pool, and started, so that every step has something to undo. */
const restore = () =>
  alone.startRestore(archive.filename, { poolId: alone.world.node.pool(1).uuid, startOn: true });

const moments = momentsOf(RESTORE_STEPS, 'extract.mid');

describe('kill -9 of the agent', () => {
  test.each(moments)('at %s', async moment => {
    const operation = await alone.killedAt(`restore.${moment}`, () => restore());
    expect(operation).toMatchObject(INTERRUPTED);
    await expectClean();
  });
});

describe('while layers are merged into one image', () => {
  const flattened = () =>
    alone.startRestore(archive.filename, { poolId: alone.world.node.pool(1).uuid, flatten: true });

  test.each(['before', 'mid', 'after'])('kill -9 of the agent at join.%s', async when => {
    const operation = await alone.killedAt(`restore.join.${when}`, () => flattened());
    expect(operation).toMatchObject(INTERRUPTED);
    await expectClean();
  });

  test.each(['before', 'after'])('cancel at join.%s', async when => {
    const operation = await alone.canceledAt(`restore.join.${when}`, () => flattened());
    expect(operation.state).toBe(OperationState.CANCELED);
    await expectClean();
  });
});

describe('cancel', () => {
  test.each(moments)('at %s', async moment => {
    const operation = await alone.canceledAt(`restore.${moment}`, () => restore());
    expect(operation.state).toBe(OperationState.CANCELED);
    await expectClean();
  });
});

describe('libvirtd is killed and restarted', () => {
  test.each(['extract.after', 'define.after'])('at %s', async moment => {
    const file = alone.pauseFile(`libvirtd-${moment}`);
    await alone.arm(`restore.${moment}=pause:${file}`);
    const id = await restore();
    await alone.whilePaused(file, async () => {
      await alone.world.node.killLibvirtd();
      await alone.world.node.startLibvirtd();
    });
    const operation = await alone.ended(id);
    if (operation.state === OperationState.SUCCEEDED) {
      const { name, disks } = JSON.parse(operation.resultJson) as {
        name: string;
        disks: { path: string }[];
      };
      const copy = new Guest(alone.world.node, name);
      expect(await copy.state()).toBe('running');
      await copy.destroy();
      const files = (await Promise.all(disks.map(disk => chainOf(disk.path)))).flat();
      await alone.world.node.virsh('undefine', name, '--snapshots-metadata');
      for (const path of files) rmSync(path);
    }
    await expectClean();
  });
});

async function chainOf(path: string): Promise<string[]> {
  const { stdout } = await run(['qemu-img', 'info', '-U', '--backing-chain', '--output=json', path]);
  return (JSON.parse(stdout) as { filename: string }[]).map(layer => layer.filename);
}
