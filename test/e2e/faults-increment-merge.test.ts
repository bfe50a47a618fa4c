// The merge of old states after an increment: slow, cut off by kill -9 of the agent or of libvirtd, and completed.
import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { readLayers } from '../../agent/src/disks/index.ts';
import { checkFileSystem, notesOf } from '../integration/archives/archive-tools.ts';
import type { Guest } from '../lab/guest.ts';
import { run, waitFor } from '../lab/run.ts';
import { AgentAlone, fileOf } from './agent-alone.ts';

let alone: AgentAlone;
let guest: Guest;
let settings: string;
let archive: { filename: string; path: string; id: string };
const texts: string[] = [];

beforeAll(async () => {
  alone = await AgentAlone.start();
  settings = join(alone.agent.dir, 'agent.yaml');
  guest = await alone.world.defineTiny({ dataDisks: [{ sizeMiB: 64 }] });
  await (await guest.start()).waitForAgent();
  const id = newId();
  await write();
  const first = await alone.ended(await alone.startBackup(guest, { fileId: id, canBeIncremental: true }));
  archive = { ...fileOf(first), id };
  for (let count = 0; count < 2; count += 1) await extend();
});
afterAll(() => alone?.stop());

/** Notes something, beside so much data that its merge lasts. */
async function write(): Promise<void> {
  const text = `note ${newId()}`;
  await guest.sh(`echo '${text}' > /mnt/vda/note; dd if=/dev/urandom of=/mnt/vda/big bs=1M count=6; sync`);
  texts.push(text);
}

async function start(): Promise<string> {
  const { filename, id } = archive;
  const extend = { poolId: alone.world.node.pool(1).uuid, filename };
  await write();
  return alone.startBackup(guest, { extend, extendFileId: id, fileId: newId() });
}

async function extend(): Promise<Operation> {
  const operation = await alone.ended(await start(), 240_000);
  expect(operation.error).toBeUndefined();
  return operation;
}

/** Runs the agent with a bound of merges, MiB/s, and faults. */
async function withMerge(bandwidth: number, faults = ''): Promise<void> {
  const kept = readFileSync(settings, 'utf8').replace(/^limits:[\s\S]*$/m, '');
  writeFileSync(settings, kept);
  appendFileSync(settings, `limits:\n  merge_bandwidth_mib: ${bandwidth}\n`);
  await alone.restart(faults);
}

/** A merge that was slow enough to be met need not be so to its end; one that has ended by now is no job any more. */
const goOnAtFullSpeed = () =>
  alone.world.node.virsh('blockjob', guest.name, 'vda', '--bandwidth', '0').catch(() => {});

/** SIGTERM, which breaks off the slow merge; what the agent then completes before its end need not be slow. */
async function stopAgent(): Promise<void> {
  const { daemon } = alone.agent;
  const seen = daemon.log().length;
  const hurry = async () => {
    if (daemon.log().slice(seen).includes('error after the commit')) await goOnAtFullSpeed();
    return daemon.pid === undefined;
  };
  await Promise.all([daemon.stop(), waitFor('the end of the agent', hurry, 120_000, 500)]);
}

/** All states of the archive are whole, the guest goes on with its newest data, three states are left. */
async function expectSound(): Promise<void> {
  expect(await guest.snapshots()).toHaveLength(3);
  expect((await guest.sh('cat /mnt/vda/note')).trim()).toBe(texts.at(-1));
  await expectChainSound();
  expect(await notesOf(archive.path, join(alone.world.dir, 'unpacked'), texts.length)).toEqual(texts);
}

/** Every layer that the guest stands on is a sound image, and its own file system is clean. */
async function expectChainSound(): Promise<void> {
  const [top] = Object.values(await guest.disks()).filter(path => path?.startsWith('/'));
  await guest.agent('guest-fsfreeze-freeze');
  try {
    for (const { path } of await readLayers(top!)) await run(['qemu-img', 'check', '-q', '-U', path]);
    const whole = join(alone.world.dir, 'whole.qcow2');
    await run(['qemu-img', 'convert', '-U', '-f', 'qcow2', '-O', 'qcow2', top!, whole]);
    await checkFileSystem(whole);
  } finally {
    await guest.agent('guest-fsfreeze-thaw');
  }
}

test.each(['agent', 'libvirtd', 'both'])('kill -9 of %s in the middle of a merge', async victim => {
  const pause = alone.pauseFile(`merge-${victim}`);
  await withMerge(1, `backup.merge.mid=pause:${pause}`);
  const id = await start();
  await alone.whilePaused(pause, async () => {
    if (victim !== 'libvirtd') await alone.agent.daemon.kill();
    if (victim !== 'agent') await alone.world.node.killLibvirtd();
    if (victim !== 'agent') await alone.world.node.startLibvirtd();
  });
  if (victim !== 'libvirtd') await withMerge(0);
  await goOnAtFullSpeed();
  expect((await alone.ended(id, 240_000)).state).toBe(OperationState.SUCCEEDED);
  if (victim === 'libvirtd') await withMerge(0);
  await extend();
  await expectSound();
});

test('SIGTERM in the middle of a merge does not lose the increment', async () => {
  const pause = alone.pauseFile('merge-term');
  await withMerge(1, `backup.merge.mid=pause:${pause}`);
  const id = await start();
  await waitFor('the merge', () => existsSync(`${pause}.reached`), 180_000, 20);
  await stopAgent();
  await withMerge(0);
  await goOnAtFullSpeed();
  expect((await alone.ended(id)).state).toBe(OperationState.SUCCEEDED);
  await extend();
  await expectSound();
});
