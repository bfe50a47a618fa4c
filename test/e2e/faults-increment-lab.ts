/** A running guest of two disks in an agent's node whose archives grow, and what the faults at an increment ask of all. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { BACKUP_STEPS } from '../../agent/src/workflows/backup/backup.ts';
import { checkFileSystem, fileInside, joinLayers, untar } from '../integration/archives/archive-tools.ts';
import { few } from '../lab/few.ts';
import type { Guest } from '../lab/guest.ts';
import { run } from '../lab/run.ts';
import { AgentAlone, fileOf, INTERRUPTED, momentsOf, type Picture } from './agent-alone.ts';

export class IncrementsAlone {
  readonly alone: AgentAlone;
  readonly guest: Guest;
  readonly #pid: number | undefined;

  private constructor(alone: AgentAlone, guest: Guest) {
    this.alone = alone;
    this.guest = guest;
    this.#pid = guest.qemuPid();
  }

  static async start(): Promise<IncrementsAlone> {
    const alone = await AgentAlone.start();
    try {
      const guest = await alone.world.defineTiny({ dataDisks: [{ sizeMiB: 64 }, { format: 'raw' }] });
      await (await guest.start()).waitForAgent();
      return new IncrementsAlone(alone, guest);
    } catch (error) {
      await alone.stop();
      throw error;
    }
  }

  /** VM and files are as before, the guest never noticed, and its layers are sound. */
  async expectAsBefore(before: Picture): Promise<void> {
    expect(await this.alone.picture(this.guest)).toEqual(before);
    expect(this.guest.qemuPid()).toBe(this.#pid);
    expect(await this.guest.agent('guest-fsfreeze-status')).toBe('thawed');
    for (const top of Object.values(await this.guest.disks()))
      if (top?.startsWith('/')) await run(['qemu-img', 'check', '-q', '-U', top]);
  }
}

/** An archive under test: each state has the text that the guest's note had then. */
export class Archive {
  readonly #lab: IncrementsAlone;
  filename = '';
  path = '';
  id = '';
  readonly texts: string[] = [];

  constructor(lab: IncrementsAlone) {
    this.#lab = lab;
  }

  async write(): Promise<void> {
    const text = `note ${newId()}`;
    await this.#lab.guest.sh(`echo '${text}' > /mnt/vda/note && sync`);
    this.texts.push(text);
  }

  async make(request: object = {}): Promise<this> {
    await this.write();
    this.id = newId();
    const { alone, guest } = this.#lab;
    const operation = await alone.ended(
      await alone.startBackup(guest, { fileId: this.id, canBeIncremental: true, hashSum: true, ...request }),
    );
    expect(operation.error).toBeUndefined();
    Object.assign(this, fileOf(operation));
    return this;
  }

  /** Starts an increment; returns the id of its operation. */
  start(request: object = {}): Promise<string> {
    const { alone, guest } = this.#lab;
    const extend = { poolId: alone.world.node.pool(1).uuid, filename: this.filename };
    return alone.startBackup(guest, { extend, extendFileId: this.id, fileId: newId(), ...request });
  }

  async extend(request: object = {}): Promise<Operation> {
    await this.write();
    const operation = await this.#lab.alone.ended(await this.start(request));
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
    const directory = await untar(this.path, join(this.#lab.alone.world.dir, 'unpacked'));
    await run(['sha256sum', '--quiet', '-c', `${this.path}.sha256`], { cwd: directory });
    const joined = new Map<string, string | undefined>();
    for (const [index, text] of this.texts.entries()) {
      const name = `${String(index + 1).padStart(4, '0')}_manifest.json`;
      const manifest = JSON.parse(readFileSync(join(directory, name), 'utf8')) as {
        disks: { target: string; layers: { member: string }[] }[];
      };
      for (const { target, layers } of manifest.disks) {
        const members = layers.map(({ member }) => member);
        const top = await joinLayers(directory, members, joined);
        await checkFileSystem(top);
        if (target === 'vda') expect((await fileInside(top, 'note')).trim()).toBe(text);
      }
    }
  }

  /** Takes the archive and its states away, so that tests do not weigh on each other. */
  remove(): void {
    rmSync(this.path);
    rmSync(`${this.path}.sha256`, { force: true });
  }
}

const moments = momentsOf(BACKUP_STEPS, 'copy.mid', 'merge.before');
const early = moments.filter(moment => !moment.startsWith('merge'));

/** Each moment of an increment, in a file of its own; its guest has no other archive yet. */
export function asksEachMoment(lab: () => IncrementsAlone, compress: boolean): void {
  let archive: Archive;
  beforeAll(async () => {
    archive = await new Archive(lab()).make({ compress });
    await archive.extend();
    await archive.extend();
  });
  afterAll(() => archive?.remove());

  const own = compress ? few(moments, 'copy.mid', 'publish.after', 'merge.before') : moments;
  test.each(own)('kill -9 of the agent at %s', async moment => {
    const before = await lab().alone.picture(lab().guest);
    const bytes = archive.bytes();
    await archive.write();
    const operation = await lab().alone.killedAt(`backup.${moment}`, () => archive.start());
    if (moment.startsWith('merge')) expect(operation.state).toBe(OperationState.SUCCEEDED);
    else {
      expect(operation).toMatchObject(INTERRUPTED);
      await lab().expectAsBefore(before);
      expect(archive.bytes()).toBe(bytes);
      archive.texts.pop();
    }
  });

  const cancellable = early.filter(moment => moment !== 'publish.after');
  test.each(compress ? few(cancellable, 'copy.mid') : cancellable)('cancel at %s', async moment => {
    const before = await lab().alone.picture(lab().guest);
    const bytes = archive.bytes();
    const operation = await lab().alone.canceledAt(`backup.${moment}`, () => archive.start());
    expect(operation.state).toBe(OperationState.CANCELED);
    await lab().expectAsBefore(before);
    expect(archive.bytes()).toBe(bytes);
  });

  test('afterwards the next increment works, at most three states are left, and every state is whole', async () => {
    await lab().alone.arm('');
    await archive.extend();
    await archive.check();
    expect(await lab().guest.snapshots()).toHaveLength(3);
    const files = lab().alone.files(1);
    expect(files.filter(name => name.startsWith('.'))).toEqual([]);
  });
}
