// kill -9 and other blows at each step of an increment: archive and VM are afterwards as before, and the next one works.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { BACKUP_STEPS } from '../../agent/src/workflows/backup/backup.ts';
import { checkFileSystem, fileInside, joinLayers, untar } from '../integration/archives/archive-tools.ts';
import type { Guest } from '../lab/guest.ts';
import { run } from '../lab/run.ts';
import { AgentAlone, fileOf, INTERRUPTED, momentsOf, type Picture } from './agent-alone.ts';

let alone: AgentAlone;
let guest: Guest;
let pid: number | undefined;

beforeAll(async () => {
  alone = await AgentAlone.start();
  guest = await alone.world.defineTiny({ dataDisks: [{ sizeMiB: 64 }, { format: 'raw' }] });
  await (await guest.start()).waitForAgent();
  pid = guest.qemuPid();
});
afterAll(() => alone?.stop());

/** An archive under test: each state has the text that the guest's note had then. */
class Archive {
  filename = '';
  path = '';
  id = '';
  readonly texts: string[] = [];

  async write(): Promise<void> {
    const text = `note ${newId()}`;
    await guest.sh(`echo '${text}' > /mnt/vda/note && sync`);
    this.texts.push(text);
  }

  async make(request: object = {}): Promise<this> {
    await this.write();
    this.id = newId();
    const operation = await alone.ended(
      await alone.startBackup(guest, { fileId: this.id, canBeIncremental: true, hashSum: true, ...request }),
    );
    expect(operation.error).toBeUndefined();
    Object.assign(this, fileOf(operation));
    return this;
  }

  /** Starts an increment; returns the id of its operation. */
  start(request: object = {}): Promise<string> {
    const extend = { poolId: alone.world.node.pool(1).uuid, filename: this.filename };
    return alone.startBackup(guest, { extend, extendFileId: this.id, fileId: newId(), ...request });
  }

  async extend(request: object = {}): Promise<Operation> {
    await this.write();
    const operation = await alone.ended(await this.start(request));
    expect(operation.error).toBeUndefined();
    return operation;
  }

  /** Archive and hash file as they are. */
  bytes(): string {
    const hash = createHash('sha256');
    for (const path of [this.path, `${this.path}.sha256`])
      if (existsSync(path)) hash.update(readFileSync(path));
    return hash.digest('hex');
  }

  /** Every state is whole: its layers are sound, its file system is clean, its note is the guest's of then. */
  async check(): Promise<void> {
    const directory = await untar(this.path, join(alone.world.dir, 'unpacked'));
    await run(['sha256sum', '--quiet', '-c', `${this.path}.sha256`], { cwd: directory });
    for (const [index, text] of this.texts.entries()) {
      const name = `${String(index + 1).padStart(4, '0')}_manifest.json`;
      const manifest = JSON.parse(readFileSync(join(directory, name), 'utf8')) as {
        disks: { target: string; layers: { member: string }[] }[];
      };
      for (const { target, layers } of manifest.disks) {
        const top = await joinLayers(directory, layers.map(({ member }) => member)); // biome-ignore format: one line
        await checkFileSystem(top);
        if (target === 'vda') expect((await fileInside(top, 'note')).trim()).toBe(text);
      }
    }
  }
}

/** VM and files are as before, the guest never noticed, and its layers are sound. */
async function expectAsBefore(before: Picture): Promise<void> {
  expect(await alone.picture(guest)).toEqual(before);
  expect(guest.qemuPid()).toBe(pid);
  expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
  for (const top of Object.values(await guest.disks()))
    if (top?.startsWith('/')) await run(['qemu-img', 'check', '-q', '-U', top]);
}

/** Takes the archive and its states away, so that tests do not weigh on each other. */
async function remove(archive: Archive): Promise<void> {
  rmSync(archive.path);
  rmSync(`${archive.path}.sha256`, { force: true });
}

const moments = momentsOf(BACKUP_STEPS, 'copy.mid', 'merge.before');
const early = moments.filter(moment => !moment.startsWith('merge'));

describe.each([
  ['tar', false],
  ['tar.zst', true],
])('%s', (_, compress) => {
  let archive: Archive;
  beforeAll(async () => {
    archive = await new Archive().make({ compress });
    await archive.extend();
    await archive.extend();
  });
  afterAll(() => remove(archive));

  test.each(moments)('kill -9 of the agent at %s', async moment => {
    const before = await alone.picture(guest);
    const bytes = archive.bytes();
    await archive.write();
    const operation = await alone.killedAt(`backup.${moment}`, () => archive.start());
    if (moment.startsWith('merge')) expect(operation.state).toBe(OperationState.SUCCEEDED);
    else {
      expect(operation).toMatchObject(INTERRUPTED);
      await expectAsBefore(before);
      expect(archive.bytes()).toBe(bytes);
      archive.texts.pop();
    }
  });

  test.each(early.filter(moment => moment !== 'publish.after'))('cancel at %s', async moment => {
    const before = await alone.picture(guest);
    const bytes = archive.bytes();
    const operation = await alone.canceledAt(`backup.${moment}`, () => archive.start());
    expect(operation.state).toBe(OperationState.CANCELED);
    await expectAsBefore(before);
    expect(archive.bytes()).toBe(bytes);
  });

  test('afterwards the next increment works, at most three states are left, and every state is whole', async () => {
    await alone.arm('');
    await archive.extend();
    await archive.check();
    expect(await guest.snapshots()).toHaveLength(compress ? 6 : 3);
    expect(alone.files(1).filter(name => name.startsWith('.'))).toEqual([]);
  });
});

describe('a plain one without hashes that is to be compressed and to have them', () => {
  let archive: Archive;
  const other = () => archive.start({ extendCompressed: true, extendHashed: true });
  beforeAll(async () => {
    archive = await new Archive().make({ compress: false, hashSum: false });
  });
  afterAll(() => remove(archive));

  async function expectUntouched(before: Picture, bytes: string): Promise<void> {
    await expectAsBefore(before);
    expect(archive.bytes()).toBe(bytes);
    expect(alone.files(1).filter(name => name.startsWith('.'))).toEqual([]);
  }

  // between the conversion and the increment, and with both made and not committed
  test.each(['recheck.before', 'publish.after'])('kill -9 of the agent at %s', async moment => {
    const [before, bytes] = [await alone.picture(guest), archive.bytes()];
    const operation = await alone.killedAt(`backup.${moment}`, other);
    expect(operation).toMatchObject(INTERRUPTED);
    await expectUntouched(before, bytes);
  });

  test('cancel in the middle of the conversion', async () => {
    const [before, bytes] = [await alone.picture(guest), archive.bytes()];
    const operation = await alone.canceledAt('backup.convert.mid', other);
    expect(operation.state).toBe(OperationState.CANCELED);
    await expectUntouched(before, bytes);
  });

  test('kill -9 when it is committed: the former file goes, and every state is whole in the other', async () => {
    await archive.write();
    const former = archive.path;
    const operation = await alone.killedAt('backup.remove.before', other);
    expect(operation.state).toBe(OperationState.SUCCEEDED);
    Object.assign(archive, fileOf(operation));
    expect([existsSync(former), archive.path]).toEqual([false, `${former}.zst`]);
    await alone.arm('');
    await archive.extend();
    await archive.check();
    expect(alone.files(1).filter(name => name.startsWith('.'))).toEqual([]);
  });
});
