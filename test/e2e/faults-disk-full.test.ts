// A disk that runs full under a real agent: while an archive is compressed or unpacked, in place or into another pool, and
// while the memory of a state is saved. What was there before is whole, nothing in part is left, and with room it works.
import { createHash, randomUUID } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { checkFileSystem, fileInside, joinLayers, untar } from '../integration/archives/archive-tools.ts';
import { makeDataDisk } from '../lab/disks.ts';
import type { Guest } from '../lab/guest.ts';
import { definePool, type Pool } from '../lab/node.ts';
import { waitFor } from '../lab/run.ts';
import { SmallDisk } from '../lab/small-disk.ts';
import { AgentAlone, fileOf } from './agent-alone.ts';

let small: SmallDisk;
let alone: AgentAlone;
let guest: Guest;
let pool: Pool;
/** Two states of the guest's, plain and compressed, beside the pools. */
let archives: Record<'tar' | 'tar.zst', string>;

beforeAll(async () => {
  small = await SmallDisk.mount(320);
  alone = await AgentAlone.start();
  pool = { name: 'small', uuid: randomUUID(), path: small.path };
  await definePool(alone.world.node, pool);
  await alone.restart();
  const path = await makeDataDisk(join(small.path, 'disk.qcow2'), { sizeMiB: 64 });
  guest = await alone.world.defineTiny({ disks: [{ path }] });
  await (await guest.start()).waitForAgent();
  archives = { tar: await makeArchive(false), 'tar.zst': await makeArchive(true) };
  for (const state of await guest.snapshots()) await removeState(state);
});
afterAll(async () => {
  await alone?.stop();
  await small?.unmount();
});
afterEach(() => small.free());

async function write(text: string): Promise<void> {
  await guest.sh(`echo ${text} > /mnt/vda/note; dd if=/dev/urandom of=/mnt/vda/${text} bs=1M count=12; sync`);
}

async function makeArchive(compress: boolean): Promise<string> {
  const id = newId();
  await write('first');
  const made = fileOf(
    await succeeded(await alone.startBackup(guest, { fileId: id, canBeIncremental: true, compress })),
  );
  await write('second');
  const extend = { poolId: alone.world.node.pool(1).uuid, filename: made.filename };
  const grown = fileOf(
    await succeeded(await alone.startBackup(guest, { extend, extendFileId: id, fileId: newId() })),
  );
  const kept = join(alone.world.dir, compress ? 'kept.tar.zst' : 'kept.tar');
  copyFileSync(grown.path, kept);
  return kept;
}

async function removeState(name: string): Promise<void> {
  const domainId = await guest.uuid();
  const { snapshots } = await alone.snapshots.list({ domainId });
  const snapshotId = snapshots.find(snapshot => snapshot.name === name)!.id;
  const operationId = newId();
  await alone.snapshots.remove({ operationId, domainId, snapshotId });
  await succeeded(operationId);
}

async function succeeded(id: string): Promise<Operation> {
  const operation = await alone.ended(id);
  expect(operation).toMatchObject({ state: OperationState.SUCCEEDED, error: undefined });
  return operation;
}

/** Starts it in an agent that waits at the point, leaves so much room, and lets it go on. */
async function withRoomAt(point: string, roomMiB: number, start: () => Promise<string>): Promise<Operation> {
  const file = alone.pauseFile(point);
  await alone.arm(`${point}=pause:${file}`);
  const id = await start();
  await alone.whilePaused(file, async () => small.fill(roomMiB));
  const operation = await alone.ended(id);
  expect(operation.state).toBe(OperationState.FAILED);
  await alone.arm('');
  return operation;
}

const backupsOf = (path: string) => {
  const directory = join(path, 'backups');
  return existsSync(directory) ? readdirSync(directory).sort() : [];
};
const hashOf = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');

describe.each([
  ['tar', 'tar.zst'],
  ['tar.zst', 'tar'],
] as const)('from %s to %s', (from, to) => {
  test.each(['in place', 'into another pool'])('%s', async where => {
    const inPlace = where === 'in place';
    const home = inPlace ? pool : alone.world.node.pool(1);
    const path = join(home.path, 'backups', `full.${from}`);
    mkdirSync(join(home.path, 'backups'), { recursive: true });
    copyFileSync(archives[from], path);
    const [hash, files] = [hashOf(path), [backupsOf(home.path), backupsOf(pool.path)]];
    const convert = async () => {
      const operationId = newId();
      const file = { poolId: home.uuid, filename: `full.${from}` };
      const poolId = inPlace ? '' : pool.uuid;
      await alone.backups.recompress({
        operationId,
        file,
        fileId: newId(),
        compress: to === 'tar.zst',
        poolId,
      });
      return operationId;
    };

    const failed = await withRoomAt('recompress.check.after', 4, convert);
    expect(failed.error).toMatchObject({ msgKey: 'disk_full' });
    expect(failed.error!.detail).toContain(small.path);
    expect([backupsOf(home.path), backupsOf(pool.path)]).toEqual(files);
    expect(hashOf(path)).toBe(hash);
    await expectStates(path);
    small.fill(4);
    expect((await alone.ended(await convert())).error).toMatchObject({ msgKey: 'pool_no_space' });

    small.free();
    const { path: made } = fileOf(await succeeded(await convert()));
    expect(made).toBe(join(pool.path, 'backups', `full.${to}`));
    expect(existsSync(path)).toBe(false);
    await expectStates(made);
    rmSync(made);
  });
});

/** Both states can be unpacked: their disks are sound, their file systems clean, their content what it was. */
async function expectStates(path: string): Promise<void> {
  const directory = await untar(path, join(alone.world.dir, 'unpacked'));
  for (const [index, text] of ['first', 'second'].entries()) {
    const name = `${String(index + 1).padStart(4, '0')}_manifest.json`;
    const manifest = JSON.parse(readFileSync(join(directory, name), 'utf8')) as {
      disks: { layers: { member: string }[] }[];
    };
    const image = await joinLayers(
      directory,
      manifest.disks[0]!.layers.map(({ member }) => member),
    );
    await checkFileSystem(image);
    expect((await fileInside(image, 'note')).trim()).toBe(text);
  }
}

test('while the memory of a state is saved', async () => {
  const domainId = await guest.uuid();
  const create = async () => {
    const operationId = newId();
    await alone.snapshots.create({ operationId, domainId, name: 'm1', memory: true });
    return operationId;
  };
  const look = async () => ({
    states: await guest.snapshots(),
    disks: await guest.disks(),
    files: readdirSync(small.path).filter(name => name !== 'filler'),
    pid: guest.qemuPid(),
  });
  const before = await look();
  small.free();
  const failed = await withRoomAt('create_snapshot.check.after', 8, create);
  expect(failed.error).toMatchObject({ msgKey: 'snapshot_failed' });
  expect(failed.error!.detail).toMatch(/space/i);
  expect(await look()).toEqual(before);
  small.fill(8);
  expect((await alone.ended(await create())).error).toMatchObject({ msgKey: 'pool_no_space' });
  small.free();
  await waitFor('the guest', async () => (await guest.state()) === 'running', 120_000);
  expect(await guest.agent('guest-ping')).toEqual({});
  expect((await guest.sh('cat /mnt/vda/note')).trim()).toBe('second');
  await succeeded(await create());
  expect(await guest.snapshots()).toEqual(['m1']);
  await removeState('m1');
  expect(await look()).toEqual(before);
});
