/**
 * Power lost while the agent works: pools, journal and libvirt's own directories lie on one recorded disk, on which backups,
 * increments, saved states, merges and a revert are really done. Afterwards the disk is as it was at any moment of that, libvirt
 * and the agent start, and what must hold then is asked.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { type Manifest, verifyArchive } from '../../../agent/src/archive/index.ts';
import { guestXml } from '../../lab/domain-xml.ts';
import { defineGuest, Guest } from '../../lab/guest.ts';
import { haltingRom } from '../../lab/idle-guest.ts';
import { expectNoLeaks } from '../../lab/leaks.ts';
import { makeWorldDir } from '../../lab/paths.ts';
import { type FileSystem, RecordedDisk } from '../../lab/recorded-disk.ts';
import { run, waitFor } from '../../lab/run.ts';
import { joinLayers, untar } from '../archives/archive-tools.ts';
import { SnapshotLab } from '../snapshots/lab.ts';

/** When power is lost. */
export interface Moment {
  /** Up to which entry of the record. */
  at: number;
  /** Of a write that was not flushed by then. */
  isLost: (entry: number) => boolean;
}

/** Something that comes to be between two moments of the record. */
interface Change<Value> {
  from: number;
  to: number;
  value: Value;
}

const TARGET = 'vda';
const VM = 'vm';

export class PowerLossLab {
  readonly #disk: RecordedDisk;
  #hasEnded = false;
  readonly #dir: string;
  #lab: SnapshotLab;
  #guest: Guest;
  /** What the guest's disk reads as. */
  readonly #views: Change<string>[] = [];
  /** By name, and when each began to be deleted. */
  readonly #states = new Map<string, Change<string> & { goneFrom: number }>();
  /** What each state of the archive has. */
  readonly #archived: Change<string>[] = [];
  #archive: { path: string; filename: string; id: string } | undefined;
  /** Where each operation lies in the record. */
  readonly spans: { name: string; from: number; to: number }[] = [];

  private constructor(dir: string, disk: RecordedDisk, lab: SnapshotLab, guest: Guest) {
    this.#dir = dir;
    this.#disk = disk;
    this.#lab = lab;
    this.#guest = guest;
  }

  static async start(kind: FileSystem): Promise<PowerLossLab> {
    const dir = makeWorldDir();
    const disk = await RecordedDisk.mount(dir, kind);
    try {
      return await PowerLossLab.#begin(dir, disk);
    } catch (error) {
      await disk.unmount();
      throw error;
    }
  }

  static async #begin(dir: string, disk: RecordedDisk): Promise<PowerLossLab> {
    mkdirSync(join(disk.mountPoint, 'w'));
    const lab = await SnapshotLab.start(join(disk.mountPoint, 'w'));
    const path = await lab.plainDisk('qcow2');
    const boot = { rom: haltingRom(lab.world.dir) };
    const xml = guestXml({ name: VM, boot, disks: [{ path, format: 'qcow2' }], agent: false, memoryMiB: 32 });
    const power = new PowerLossLab(dir, disk, lab, await defineGuest(lab.world.node, VM, xml));
    // what the lab itself has made is there
    await run(['sync', '-f', disk.mountPoint]);
    await power.write(0);
    return power;
  }

  /** Does something, and notes where it lies in the record. */
  async #span<Result>(name: string, work: () => Promise<Result>): Promise<[Result, number, number]> {
    const from = this.#disk.mark();
    const result = await work();
    const to = this.#disk.mark();
    this.spans.push({ name, from, to });
    return [result, from, to];
  }

  /** Switches the guest on, or off as a power cut does. */
  async power(on: boolean): Promise<void> {
    await this.#lab.world.node.virsh(on ? 'start' : 'destroy', VM);
  }

  /** The guest writes a block, and flushes. */
  async write(block: number): Promise<void> {
    const [, from, to] = await this.#span('write', () => this.#lab.write(this.#guest, TARGET, block));
    this.#views.push({ from, to, value: await this.#view() });
  }

  async #view(): Promise<string> {
    return (await this.#lab.contents(this.#guest))[TARGET]!;
  }

  async create(name: string): Promise<void> {
    const [, from, to] = await this.#span('create', () => this.#lab.create(this.#guest, name));
    this.#states.set(name, {
      from,
      to,
      value: this.#views.at(-1)!.value,
      goneFrom: Number.POSITIVE_INFINITY,
    });
  }

  async remove(name: string): Promise<void> {
    const state = this.#states.get(name)!;
    state.goneFrom = this.#disk.mark();
    await this.#span('remove', () => this.#lab.remove(this.#guest, name));
  }

  async revert(name: string): Promise<void> {
    const [, from, to] = await this.#span('revert', () => this.#lab.revert(this.#guest, name));
    this.#views.push({ from, to, value: this.#states.get(name)!.value });
  }

  /** A new archive, or its next state. */
  async backup(): Promise<void> {
    const { lab } = this.#lab;
    const poolId = lab.world.node.pool(1).uuid;
    const archive = this.#archive;
    const request = archive
      ? { extend: { poolId, filename: archive.filename }, extendFileId: archive.id }
      : { canBeIncremental: true };
    const name = archive ? 'increment' : 'backup';
    const [{ file }, from, to] = await this.#span(name, () => lab.backup(this.#guest, request));
    this.#archive = file;
    this.#archived.push({ from, to, value: this.#views.at(-1)!.value });
  }

  /** What is recorded. */
  async history(): Promise<void> {
    await this.power(true);
    await this.write(1);
    await this.backup();
    await this.write(2);
    await this.create('a');
    await this.write(3);
    await this.backup();
    await this.power(false);
    await this.write(4);
    await this.backup();
    await this.create('b');
    await this.write(5);
    await this.remove('a');
    await this.power(true);
    await this.write(6);
    await this.create('c');
    await this.write(7);
    await this.remove('b');
    await this.revert('c');
    await this.write(8);
    await this.power(false);
    await this.remove('c');
    await this.end();
  }

  /** Ends the recording. */
  async end(): Promise<void> {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    await this.#lab.lab.cut();
    await this.#disk.unmount();
  }

  async stop(): Promise<void> {
    await this.end();
    rmSync(this.#dir, { recursive: true, force: true });
    expectNoLeaks();
  }

  /**
   * Moments of all that was done: right after a flush, or up to the next one, when any part of what came since may be there.
   * @param count how many, spread evenly
   */
  moments(count: number, seed: number): Moment[] {
    const all = this.#disk.flushes(this.spans[0]!.to, this.spans.at(-1)!.to);
    const random = randomOf(seed);
    const found: Moment[] = [];
    for (let part = 0; part < Math.min(count, all.length); part += 1) {
      const [first, end] = [part, part + 1].map(index =>
        Math.floor((index * all.length) / Math.min(count, all.length)),
      );
      const index = first! + random(end! - first!);
      const [flush, next] = [all[index]!, all[index + 1] ?? all[index]! + 1];
      if (random(2)) found.push({ at: flush, isLost: () => false });
      else found.push({ at: flush + random(next - flush), isLost: () => random(2) > 0 });
    }
    return found;
  }

  /** The last flushes of the operations of that name: they have done all and are about to tell it, or have just told. */
  ends(name: string): Moment[] {
    return this.spans
      .filter(span => span.name === name)
      .map(({ from, to }) => ({ at: this.#disk.flushes(from, to).at(-1)!, isLost: () => false }));
  }

  /** @returns what did not hold, and where */
  async loseAt(moments: readonly Moment[]): Promise<string[]> {
    const failures: string[] = [];
    for (const { at, isLost } of moments)
      await this.lose(at, isLost).catch((error: Error) => {
        const failure = `${this.during(at)}, entry ${at}: ${error.message}`;
        // told at once: a run of every moment takes an hour
        process.stderr.write(`${failure}\n`);
        failures.push(failure);
      });
    return failures;
  }

  /** @param isLost of each write that was not flushed: whether it never got to the disk */
  async lose(at: number, isLost: (entry: number) => boolean): Promise<void> {
    await this.#disk.mountAsOf(at, isLost);
    try {
      const lab = await SnapshotLab.start(join(this.#disk.mountPoint, 'w'));
      this.#lab = lab;
      this.#guest = new Guest(lab.world.node, VM);
      try {
        await this.#recover();
        await this.#check(at);
      } finally {
        await lab.lab.cut();
      }
    } finally {
      await this.#disk.unmountReplayed();
    }
  }

  async #recover(): Promise<void> {
    const { runner, journal } = this.#lab.lab;
    runner.recover();
    const left = () => journal.unsettled().map(({ message }) => message.kind);
    await waitFor('the end of the recovery', () => left().length === 0, 240_000, 20).catch(error => {
      throw new Error(`${error.message}: ${left().join(', ')}`);
    });
  }

  /** Which operation power was lost in. */
  during(at: number): string {
    const { name, from } = this.spans.findLast(span => span.from <= at)!;
    return `${name} at ${from}`;
  }

  async #check(at: number): Promise<void> {
    const where = { at, during: this.during(at) };
    await this.#lab.check(this.#guest, true);
    const view = await this.#view();
    expect({ ...where, view, isKnown: possible(this.#views, at).includes(view) }).toMatchObject({
      isKnown: true,
    });
    const kept = await this.#lab.statesContents(this.#guest);
    for (const [name, { to, value, goneFrom }] of this.#states) {
      if (kept[name] === undefined && (at < to || at >= goneFrom)) continue;
      expect({ ...where, name, kept: kept[name]?.[TARGET] }).toEqual({ ...where, name, kept: value });
    }
    await this.#checkArchive(at, where);
    await this.#checkFiles(where);
  }

  /** What the archive had when power was lost it has; the state that was on its way may be there, whole. */
  async #checkArchive(at: number, where: object): Promise<void> {
    const { path } = this.#archive!;
    const due = this.#archived.filter(({ to }) => to <= at).length;
    if (due === 0 && !existsSync(path)) return;
    const { problems } = await verifyArchive(path, { signal: AbortSignal.timeout(60_000) });
    expect({ ...where, problems }).toEqual({ ...where, problems: [] });
    const directory = await untar(path, join(this.#dir, 'unpacked'));
    const manifests = readdirSync(directory)
      .filter(name => name.endsWith('_manifest.json'))
      .sort();
    expect({ ...where, states: [due, due + 1].includes(manifests.length) }).toEqual({
      ...where,
      states: true,
    });
    const members: string[] = [];
    for (const [index, name] of manifests.entries()) {
      const manifest = JSON.parse(readFileSync(join(directory, name), 'utf8')) as Manifest;
      members.push(
        ...manifest.disks[0]!.layers.map(({ member }) => member).filter(member => !members.includes(member)),
      );
      const top = await joinLayers(directory, members);
      const content = await this.#lab.hash(top, 'qcow2');
      expect({ ...where, index, content }).toEqual({
        ...where,
        index,
        content: this.#archived[index]!.value,
      });
    }
    rmSync(directory, { recursive: true });
  }

  /** Nothing of a cut operation is left. */
  async #checkFiles(where: object): Promise<void> {
    const archives = this.#lab.lab.files(1).filter(name => name !== 'backups');
    const own = this.#archive!.filename;
    expect({ ...where, left: archives.filter(name => name !== own && name !== `${own}.sha256`) }).toEqual({
      ...where,
      left: [],
    });
    const used = await this.#lab.usedFiles(this.#guest);
    expect({ ...where, left: this.#lab.files().filter(name => !used.includes(name)) }).toEqual({
      ...where,
      left: [],
    });
  }
}

/** Numbers that look random, the same for the same seed. */
function randomOf(seed: number): (below: number) => number {
  let state = seed * 2_654_435_761 + 12_345;
  return below => {
    state = (Math.imul(state ^ (state >>> 15), 2_246_822_519) + 3_266_489_917) | 0;
    return ((state ^ (state >>> 13)) >>> 0) % below;
  };
}

/** What may be there at a moment: what was before, and what was on its way. */
function possible<Value>(changes: readonly Change<Value>[], at: number): Value[] {
  const done = changes.filter(({ to }) => to <= at).at(-1);
  const coming = changes.find(({ from, to }) => from <= at && at < to);
  return [done, coming].flatMap(change => (change ? [change.value] : []));
}
