/**
 * A model of undo: a workflow is run for real on a file system and a scripted libvirt, is cut off at some point (it fails there, or the
 * agent is killed), and then its undo is, too, again and again; after every pass nothing may be lost, nothing may count as done
 * that is not, and when the trouble ends all is cleaned up.
 */
import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { ErrorCode } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import { ActiveOperation } from '../../agent/src/operations/active.ts';
import type { Faults } from '../../agent/src/operations/faults.ts';
import { Journal } from '../../agent/src/operations/journal.ts';
import { NOBODY_ASKED } from '../../agent/src/other-nodes.ts';
import type { PoolRecord } from '../../agent/src/pools/index.ts';
import type { Effect, Workflow } from '../../agent/src/workflows/context.ts';
import type { WorkflowDependencies } from '../../agent/src/workflows/dependencies.ts';
import { undoEffects } from '../../agent/src/workflows/recover.ts';
import { run } from '../lab/run.ts';
import { refuse, ScriptedLibvirt } from './scripted-libvirt.ts';

/** Numbers that look random, the same for the same seed. */
export type Random = (below: number) => number;

export function randomOf(seed: number): Random {
  let state = seed * 2_654_435_761 + 12_345;
  return below => {
    state = (Math.imul(state ^ (state >>> 15), 2_246_822_519) + 3_266_489_917) | 0;
    return ((state ^ (state >>> 13)) >>> 0) % below;
  };
}

/** A workflow, and what must hold of its world. */
export interface Story {
  kind: string;
  /** How many points it passes from its first effect on, about. */
  points: number;
  workflow(operationId: string): Workflow;
  /** After each pass, whatever failed: throws when something is lost. */
  safe(committed: boolean): Promise<void>;
  /** When nothing is left to be undone. */
  settled(committed: boolean): Promise<void>;
  /** Right after an effect counts as undone: throws when it is not. */
  undone(effect: Effect, committed: boolean): Promise<void>;
  /** What others do between two passes: a guest is started and writes, say. */
  life?(random: Random): Promise<void>;
}

export type BuildStory = (world: World, random: Random) => Promise<Story>;

const QEMU_IMG = '/usr/bin/qemu-img';

/** One node: pool, directories of libvirt, journal. */
export class World {
  // in memory: the model is about order, and not about what a disk has kept
  readonly root = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'vk-undo-'));
  readonly pool = join(this.root, 'pool');
  readonly nvram = join(this.root, 'nvram');
  readonly swtpm = join(this.root, 'swtpm');
  readonly scratch = join(this.root, 'scratch');
  readonly scripted = new ScriptedLibvirt();
  /** What undo told the user. */
  readonly warnings: string[] = [];
  readonly #path = process.env.PATH;

  constructor() {
    for (const directory of [this.pool, this.nvram, this.swtpm, join(this.root, 'bin')]) mkdirSync(directory);
    const wrapper = join(this.root, 'bin/qemu-img');
    const failing = join(this.root, 'qemu-img-fails');
    writeFileSync(
      wrapper,
      `#!/bin/sh\n[ -e ${failing} ] && { echo injected >&2; exit 1; }\nexec ${QEMU_IMG} "$@"\n`,
    );
    chmodSync(wrapper, 0o755);
    process.env.PATH = `${join(this.root, 'bin')}:${this.#path}`;
  }

  get dependencies(): WorkflowDependencies {
    return {
      libvirt: () => this.scripted.libvirt,
      pools: async () => [this.poolRecord],
      filesChanged: () => {},
      log: silent,
      version: '1',
      nodeName: 'node',
      otherNodes: NOBODY_ASKED,
      nvramDirectory: this.nvram,
      swtpmDirectory: this.swtpm,
      mergeBandwidthMiB: 0,
    } as unknown as WorkflowDependencies;
  }

  readonly poolRecord: PoolRecord = {
    ...{ id: newId(), name: 'pool', kind: 'local', path: this.pool, hasDirectory: true, active: true },
    ...{ mounted: true, capacity: 2 ** 40, allocation: 0, available: 2 ** 40, readonly: false },
    ...{ outside: false, shared: false, description: '', isBase: true },
  };

  /** While it is set, qemu-img fails, whatever it is asked. */
  set qemuImgFails(fails: boolean) {
    const path = join(this.root, 'qemu-img-fails');
    if (fails) writeFileSync(path, '');
    else rmSync(path, { force: true });
  }

  get qemuImgFails(): boolean {
    return existsSync(join(this.root, 'qemu-img-fails'));
  }

  async disk(name: string): Promise<string> {
    const path = join(this.pool, name);
    await this.blank(path);
    return path;
  }

  async blank(path: string): Promise<void> {
    await run([QEMU_IMG, 'create', '-q', '-f', 'qcow2', path, String(DISK_BYTES)]);
  }

  /** A guest writes: 4 KiB of one byte at a block. */
  async write(path: string, block: number, byte: number): Promise<void> {
    const command = `write -q -P ${byte} ${block * BLOCK_BYTES} ${BLOCK_BYTES}`;
    await run(['qemu-io', '-f', await formatOf(path), '-c', command, path]);
  }

  /** What a guest reads from a file with all below it, as a short hash. */
  async content(path: string): Promise<string> {
    return hashOf(guestBytes(path));
  }

  /** Files of the world, without journal and helpers. */
  files(): string[] {
    return ['pool', 'nvram', 'swtpm', 'scratch']
      .flatMap(name => {
        const directory = join(this.root, name);
        if (!existsSync(directory)) return [];
        return readdirSync(directory, { recursive: true, withFileTypes: true })
          .filter(entry => !entry.isDirectory())
          .map(entry => relative(this.root, join(entry.parentPath, entry.name)));
      })
      .sort();
  }

  remove(): void {
    process.env.PATH = this.#path;
    rmSync(this.root, { recursive: true, force: true });
  }
}

/** Size of each disk, bytes. */
const DISK_BYTES = 256 * 1024;
const BLOCK_BYTES = 4096;

/** What a disk reads as after these writes, as a short hash. */
export function expectedContent(writes: readonly (readonly [block: number, byte: number])[]): string {
  const bytes = Buffer.alloc(DISK_BYTES);
  for (const [block, byte] of writes) bytes.fill(byte, block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
  return hashOf(bytes);
}

const hashOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex').slice(0, 16);

/** Reads a small image with its layers, without a process for each of the many looks. */
function guestBytes(path: string): Buffer {
  const file = readFileSync(path);
  const bytes = Buffer.alloc(DISK_BYTES);
  if (file.subarray(0, 4).toString('latin1') !== 'QFI\xfb') {
    file.copy(bytes);
    return bytes;
  }
  const nameOffset = Number(file.readBigUInt64BE(8));
  const name = file.subarray(nameOffset, nameOffset + file.readUInt32BE(16)).toString();
  if (nameOffset > 0 && name !== '') guestBytes(name).copy(bytes);
  const clusterBytes = 1 << file.readUInt32BE(20);
  const offset = (at: bigint) => Number(at & 0x00fffffffffffe00n);
  const table = offset(file.readBigUInt64BE(Number(file.readBigUInt64BE(40))));
  for (let index = 0; table > 0 && index * clusterBytes < DISK_BYTES; index += 1) {
    const entry = file.readBigUInt64BE(table + index * 8);
    const at = index * clusterBytes;
    if (entry & 1n) bytes.fill(0, at, at + clusterBytes);
    else if (offset(entry) > 0) file.copy(bytes, at, offset(entry), offset(entry) + clusterBytes);
  }
  return bytes;
}

const formatOf = async (path: string): Promise<string> =>
  readFileSync(path).subarray(0, 4).toString('latin1') === 'QFI\xfb' ? 'qcow2' : 'raw';

const ignore = () => {};
export const silent = {
  ...{ error: ignore, warn: ignore, info: ignore, debug: ignore, child: () => silent },
} as unknown as Logger;

/** What goes wrong in one go: in the workflow, or in one pass of its undo. */
interface Trouble {
  /** The point that fails, counted; the call of it fails for ever with `always`. */
  at: number;
  how: 'fail' | 'kill';
}

class Killed extends Error {}

/** Runs a story with the troubles that the seed says. @returns what happened, for the report of a failure */
export async function play(build: BuildStory, seed: number, log: string[]): Promise<void> {
  const random = randomOf(seed);
  const world = new World();
  try {
    await new Player(world, await build(world, random), random, log).play();
  } finally {
    world.remove();
  }
}

/** How many points the undo of a story has, about; a cut beyond its end leaves a pass whole. */
const UNDO_POINTS = 30;
const PASSES = 4;
/** How long one effect may try in vain. */
const IMPATIENT_MS = 2_000;

class Player {
  readonly #world: World;
  readonly #story: Story;
  readonly #random: Random;
  readonly #log: string[];
  readonly #id = newId();
  #journal: Journal;
  #operation: ActiveOperation;
  #trouble: Trouble | null = null;
  #failing: string | null = null;
  #count = 0;
  #kill: (error: Error) => void = ignore;
  readonly #violations: string[] = [];

  constructor(world: World, story: Story, random: Random, log: string[]) {
    this.#world = world;
    this.#story = story;
    this.#random = random;
    this.#log = log;
    this.#journal = this.#open();
    const message = Operation.fromPartial({
      ...{ id: this.#id, kind: story.kind, state: OperationState.RUNNING, created: new Date() },
    });
    const record = { message, fingerprint: '', locks: [], committed: false };
    this.#journal.insertOperation(record);
    this.#operation = this.#adopt();
    world.scripted.reach = point => this.#reach(point);
  }

  async play(): Promise<void> {
    const cut = this.#random(8) === 0 ? null : { at: this.#random(this.#story.points), how: this.#how() };
    this.#log.push(`the workflow: ${JSON.stringify(cut)}`);
    await this.#go(cut, async () => {
      const workflow = this.#story.workflow(this.#id);
      await workflow(this.#operation.context()).catch(error => {
        this.#log.push(`it ended with ${String(error)} ${JSON.stringify(error.params ?? '')}`);
        if (!cut) throw error;
      });
    });
    this.#log.push(`points: ${this.#count}`);
    const committed = () => this.#operation.committed;
    this.#log.push(`committed: ${committed()}, left: ${this.#left().join(', ')}`);
    await this.#check('after the workflow', () => this.#story.safe(committed()));
    for (let pass = 0; pass < PASSES && this.#left().length > 0; pass += 1) {
      const trouble =
        this.#random(4) === 0 ? null : { at: this.#random(1 + this.#random(UNDO_POINTS)), how: this.#how() };
      this.#world.qemuImgFails = this.#random(5) === 0;
      this.#log.push(`pass ${pass}: ${JSON.stringify(trouble)} qemu-img fails: ${this.#world.qemuImgFails}`);
      await this.#go(trouble, () => this.#undo(IMPATIENT_MS));
      this.#world.qemuImgFails = false;
      this.#log.push(`left: ${this.#left().join(', ')}`);
      await this.#check(`after pass ${pass}`, () => this.#story.safe(committed()));
      if (this.#random(2)) await this.#story.life?.(this.#random);
    }
    this.#log.push(`points: ${this.#count}`);
    this.#failing = null;
    for (let pass = 0; pass < 2; pass += 1) await this.#go(null, () => this.#undo(60_000));
    const left = this.#left();
    if (left.length > 0) throw new Error(`still to be undone: ${left.join(', ')}`);
    await this.#check('at the end', () => this.#story.safe(committed()));
    await this.#check('at the end', () => this.#story.settled(committed()));
  }

  #how(): 'fail' | 'kill' {
    if (this.#random(6) === 0) return 'kill';
    return this.#random(2) ? 'fail' : 'kill';
  }

  async #check(when: string, assertion: () => Promise<void>): Promise<void> {
    try {
      await assertion();
    } catch (error) {
      (error as Error).message = `${when}: ${(error as Error).message}`;
      throw error;
    }
  }

  async #undo(timeoutMs: number): Promise<void> {
    const failures = await this.#operation.effects.undoAll(() => AbortSignal.timeout(timeoutMs), ignore);
    for (const { what, reason } of failures) this.#log.push(`${what} is not undone: ${reason}`);
  }

  #left(): string[] {
    return this.#journal.effects(this.#id).map(({ effect }) => effect.type);
  }

  /** Runs it until its end or the kill; after a kill nothing of it goes on, and a new agent has the journal. */
  async #go(trouble: Trouble | null, work: () => Promise<void>): Promise<void> {
    this.#count = 0;
    this.#trouble = trouble;
    const killed = new Promise<never>((_resolve, reject) => {
      this.#kill = reject;
    });
    try {
      await Promise.race([work(), killed]);
    } catch (error) {
      if (!(error instanceof Killed)) throw error;
      this.#journal.close();
      this.#journal = this.#open();
      this.#operation = this.#adopt();
    } finally {
      this.#trouble = null;
    }
    if (this.#violations.length > 0) throw new Error(this.#violations.join('\n'));
  }

  async #reach(point: string): Promise<void> {
    const trouble = this.#trouble;
    if (this.#failing === point) throw refuse(ErrorCode.OPERATION_FAILED, `${point} fails for ever`);
    // before the first effect there is nothing to be undone
    if (!trouble || (this.#count === 0 && this.#left().length === 0)) return;
    // the line of a guest's agent is in the process, which here outlives the kill
    if (point.startsWith('virDomainQemuAgentCommand') && trouble.how === 'kill') return;
    if (this.#count++ !== trouble.at) return;
    this.#log.push(`${trouble.how} at ${point}`);
    if (trouble.how === 'kill') {
      this.#kill(new Killed(point));
      await new Promise(() => {});
    }
    // every second failure is one that lasts
    if (this.#random(2)) this.#failing = point;
    throw refuse(ErrorCode.OPERATION_FAILED, `injected at ${point}`);
  }

  #open(): Journal {
    return new Journal(join(this.#world.root, 'journal.db'));
  }

  #adopt(): ActiveOperation {
    const record = this.#journal.operation(this.#id)!;
    const undo = undoEffects(this.#world.dependencies as never);
    const committed = () => this.#operation.committed;
    return new ActiveOperation(record, {
      journal: this.#journal,
      log: silent,
      faults: this.#faults(),
      changed: ignore,
      undoEffect: async (effect, signal, warn) => {
        await this.#reach(`undo of ${effect.type}.before`);
        await undo(effect, signal, warn);
        await this.#story.undone(effect, committed()).catch((error: Error) => {
          this.#violations.push(`${effect.type} counts as undone: ${error.message}`);
        });
        await this.#reach(`undo of ${effect.type}.after`);
      },
    });
  }

  #faults(): Faults {
    const reach = async (kind: string, step: string, when: string) => {
      if (this.#trouble) await this.#reach(`${kind}.${step}.${when}`).catch(asFault);
    };
    return { active: false, reach, middle: () => undefined } as unknown as Faults;
  }
}

function asFault(error: Error): never {
  throw new VirtkeepError('io_failed', { operation: 'inject', path: '', reason: error.message });
}
