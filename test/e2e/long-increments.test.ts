/**
 * A long life of one running guest with four incremental archives side by side (plain and compressed, saved states held
 * and not), the agent killed at random points; in the end every state of every archive holds what the guest said then.
 *
 * VIRTKEEP_LONG_INCREMENTS (default 8) and VIRTKEEP_LONG_SEED make it longer or different.
 */
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId } from '@virtkeep/shared/ids';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { BACKUP_STEPS } from '../../agent/src/workflows/backup/backup.ts';
import { run, waitFor } from '../lab/run.ts';
import { AgentAlone } from './agent-alone.ts';
import { LivingGuest, type Trees, treeOfImage } from './long-history.ts';

const INCREMENTS = Number(process.env.VIRTKEEP_LONG_INCREMENTS ?? 8);
const SEED = Number(process.env.VIRTKEEP_LONG_SEED ?? 20_261_121);
/** Every so many increments the agent is killed in the middle of one. */
const KILL_EVERY = 4;

interface LongArchive {
  compress: boolean;
  holdStates: boolean;
  id: string;
  filename: string;
  /** What the guest said, per state. */
  states: Trees[];
}

let alone: AgentAlone;
let living: LivingGuest;
const random = seededRandom(SEED);
const archives: LongArchive[] = [];
const diary: string[] = [];

beforeAll(async () => {
  alone = await AgentAlone.start();
  const guest = await alone.world.defineTiny({ dataDisks: [{ sizeMiB: 48 }, { sizeMiB: 48 }] });
  await (await guest.start()).waitForAgent();
  living = new LivingGuest(alone.world, guest, ['vda', 'vdb'], random);
});
afterAll(() => alone?.stop());

const pool = () => alone.world.node.pool(1);
const fileOf = (operation: Operation): BackupFile =>
  BackupFile.fromJSON((JSON.parse(operation.resultJson) as { file: unknown }).file);

async function begin(compress: boolean, holdStates: boolean): Promise<void> {
  const trees = await living.trees();
  const started = await alone.startBackup(living.guest, { canBeIncremental: true, compress, holdStates });
  const operation = await alone.ended(started);
  expect(operation).toMatchObject({ state: OperationState.SUCCEEDED });
  const { id, filename } = fileOf(operation);
  archives.push({ compress, holdStates, id, filename, states: [trees] });
}

/** Not every step is taken each time (there may be nothing to merge): then the operation just ends. */
async function diedOrEnded(id: string): Promise<void> {
  const ended = async () => {
    if (alone.agent.daemon.pid === undefined) return true;
    const operation = await alone.operations.get({ id }).catch(() => undefined);
    return operation !== undefined && operation.state !== OperationState.RUNNING;
  };
  await waitFor('the death of the agent, or the end of the increment', ended, 600_000);
}

/** Extends an archive; when a kill is wanted, the agent dies at a random step first. */
async function extend(archive: LongArchive, kill: boolean): Promise<void> {
  const trees = await living.trees();
  const request = {
    fileId: newId(),
    extend: { poolId: pool().uuid, filename: archive.filename },
    extendFileId: archive.id,
    holdStates: archive.holdStates,
  };
  if (kill) {
    const step = BACKUP_STEPS[random(BACKUP_STEPS.length)]!;
    const moment = `${step}.${['before', 'after'][random(2)]}`;
    diary.push(`the agent is killed at ${moment}`);
    await alone.restart(`backup.${moment}=kill`);
    const id = await alone.startBackup(living.guest, request);
    await diedOrEnded(id);
    await alone.restart();
    if ((await alone.ended(id)).state === OperationState.SUCCEEDED) {
      archive.states.push(trees);
      return;
    }
  }
  const operation = await alone.ended(await alone.startBackup(living.guest, { ...request, fileId: newId() }));
  expect({ diary: diary.slice(-6), operation }).toMatchObject({
    operation: { state: OperationState.SUCCEEDED },
  });
  expect(fileOf(operation)).toMatchObject({ id: archive.id, filename: archive.filename, fallbackReason: '' });
  archive.states.push(trees);
}

/** Restores one state and compares each disk; nothing of it stays. */
async function expectState(archive: LongArchive, state: number, flatten: boolean): Promise<void> {
  const before = new Set(readdirSync(pool().path));
  const name = `restored-${archives.indexOf(archive)}-${state}`;
  const id = await alone.startRestore(archive.filename, {
    state: String(state),
    name,
    poolId: pool().uuid,
    flatten,
  });
  const operation = await alone.ended(id);
  expect({ name, operation }).toMatchObject({ operation: { state: OperationState.SUCCEEDED } });
  const { disks } = JSON.parse(operation.resultJson) as { disks: { path: string; target_dev: string }[] };
  const found: Trees = {};
  for (const disk of disks)
    found[disk.target_dev] = await treeOfImage(disk.path, join(alone.world.dir, `look-${disk.target_dev}`));
  expect({ name, found }).toEqual({ name, found: archive.states[state - 1] });
  await alone.world.node.virsh('undefine', name, '--snapshots-metadata', '--nvram');
  for (const file of readdirSync(pool().path))
    if (!before.has(file)) rmSync(join(pool().path, file), { recursive: true });
}

test(`${INCREMENTS} increments of a running guest: every state is what the guest said then`, async () => {
  for (const compress of [false, true]) {
    for (const hold of [true, false]) {
      diary.push(await living.change());
      await begin(compress, hold);
    }
  }
  for (let count = 1; count <= INCREMENTS; count += 1) {
    for (let changes = 1 + random(2); changes > 0; changes -= 1) diary.push(await living.change());
    await extend(archives[random(archives.length)]!, count % KILL_EVERY === 0);
  }
  for (const path of Object.values(await living.guest.disks()).filter(path => path.startsWith('/')))
    await run(['qemu-img', 'check', '-q', '-U', '-f', 'qcow2', path]);
  for (const archive of archives) {
    for (let state = 1; state <= archive.states.length; state += 1)
      await expectState(archive, state, state % 2 === 0);
  }
}, 3_600_000);
