/**
 * A model of undo: a workflow is run for real on a file system and a scripted libvirt, is cut off at some point (something fails
 * there, it is cancelled, or the agent is killed), and then its undo is, too, again and again; after every pass nothing may be
 * lost, nothing may count as done that is not, and when the trouble ends all is cleaned up.
 */
import { join } from 'node:path';
import { ErrorCode } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { setLock } from '../../agent/src/archive/system/syscalls.ts';
import { ActiveOperation } from '../../agent/src/operations/active.ts';
import type { Faults } from '../../agent/src/operations/faults.ts';
import { Journal } from '../../agent/src/operations/journal.ts';
import type { Workflow } from '../../agent/src/workflows/context.ts';
import type { Effect, UndoWhen } from '../../agent/src/workflows/effect.ts';
import { undoEffects } from '../../agent/src/workflows/undo/recover.ts';
import { RunOfAgent } from './run-of-agent.ts';
import { refuse } from './scripted-machine.ts';
import { ALONE, silent, World } from './world.ts';

/** Numbers that look random, the same for the same seed. */
export type Random = (below: number) => number;

export function randomOf(seed: number): Random {
  let state = Math.imul(seed, 0x9e37_79b1) + 12_345;
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
  /** It may be refused although nothing went wrong. */
  mayFail?: boolean;
}

export type BuildStory = (world: World, random: Random) => Promise<Story>;

const ignore = () => {};

/** What goes wrong in one go: in the workflow, or in one pass of its undo. */
interface Trouble {
  /** The point where it happens, counted; every second call that fails does so for ever. */
  at: number;
  how: 'fail' | 'kill' | 'cancel';
}

class Killed extends Error {}

/** What a history met. */
export interface Played {
  /** Effects that were declared. */
  effects: ReadonlySet<Effect['type']>;
  points: number;
}

/** Runs a story with the troubles that the seed says. @param log gets what happened, for the report of a failure */
export async function play(build: BuildStory, seed: number, log: string[]): Promise<Played> {
  const random = randomOf(seed);
  const world = new World();
  try {
    const player = new Player(world, await build(world, random), random, log);
    return await player.play().finally(() => player.close());
  } finally {
    world.remove();
  }
}

/** How many points the undo of a story has, about: what only goes away, and what is merged. A cut beyond its end leaves a pass whole. */
const UNDO_POINTS = { few: 30, many: 300 };
const PASSES = 4;
/** How long one effect may try in vain. */
const IMPATIENT_MS = 1_000;
/** Of the calls of qemu-img of a workflow one of the first so many may fail. */
const QEMU_IMG_CALLS = 12;

class Player {
  readonly #world: World;
  readonly #story: Story;
  readonly #random: Random;
  readonly #log: string[];
  readonly #id = newId();
  readonly #effects = new Set<Effect['type']>();
  readonly #runs: RunOfAgent[] = [];
  readonly #violations: string[] = [];
  #journal: Journal;
  #operation: ActiveOperation;
  #run: RunOfAgent;
  #trouble: Trouble | null = null;
  #failing: string | null = null;
  #count = 0;
  #kill: (error: Error) => void = ignore;

  constructor(world: World, story: Story, random: Random, log: string[]) {
    this.#world = world;
    this.#story = story;
    this.#random = random;
    this.#log = log;
    this.#journal = this.#open();
    const message = Operation.fromPartial({
      ...{ id: this.#id, kind: story.kind, state: OperationState.RUNNING, created: new Date() },
    });
    this.#journal.insertOperation({ message, fingerprint: '', locks: [], committed: false });
    this.#run = this.#begin();
    this.#operation = this.#adopt();
  }

  async play(): Promise<Played> {
    const cut = this.#random(8) === 0 ? null : this.#cutOf(this.#story.points, true);
    const failsAt = this.#random(8) === 0 ? this.#random(QEMU_IMG_CALLS) : null;
    this.#world.qemuImgFailsAt = failsAt;
    this.#log.push(`the workflow: ${JSON.stringify(cut)} qemu-img fails at: ${failsAt}`);
    await this.#go(cut, async () => {
      const workflow = this.#story.workflow(this.#id);
      await workflow(this.#operation.context(ALONE)).catch(error => {
        this.#log.push(`it ended with ${String(error)} ${JSON.stringify(error.params ?? '')}`);
        if (!cut && failsAt === null && !this.#story.mayFail) throw error;
      });
    });
    const points = this.#count;
    this.#world.qemuImgFailsAt = null;
    this.#log.push(`points: ${points}, committed: ${this.#committed}, left: ${this.#left().join(', ')}`);
    await this.#check('after the workflow', () => this.#story.safe(this.#committed));
    for (let pass = 0; pass < PASSES && this.#left().length > 0; pass += 1) await this.#pass(pass);
    this.#failing = null;
    for (let pass = 0; pass < 2; pass += 1) await this.#go(null, () => this.#undo(60_000));
    const left = this.#left();
    if (left.length > 0) throw new Error(`still to be undone: ${left.join(', ')}`);
    await this.#check('at the end', () => this.#story.safe(this.#committed));
    await this.#check('at the end', () => this.#story.settled(this.#committed));
    return { effects: this.#effects, points };
  }

  /** What is left of its runs. */
  async close(): Promise<void> {
    this.#journal.close();
    for (const run of this.#runs) await run.close();
  }

  async #pass(pass: number): Promise<void> {
    const cut =
      this.#random(4) === 0
        ? null
        : this.#cutOf(1 + this.#random(this.#random(2) ? UNDO_POINTS.few : UNDO_POINTS.many), false);
    this.#world.qemuImgFails = this.#random(5) === 0;
    this.#log.push(`pass ${pass}: ${JSON.stringify(cut)} qemu-img fails: ${this.#world.qemuImgFails}`);
    await this.#go(cut, () => this.#undo(IMPATIENT_MS));
    this.#world.qemuImgFails = false;
    this.#log.push(`left: ${this.#left().join(', ')}`);
    await this.#check(`after pass ${pass}`, () => this.#story.safe(this.#committed));
    if (this.#random(2)) await this.#story.life?.(this.#random);
  }

  #cutOf(points: number, isWorkflow: boolean): Trouble {
    // what comes first is met by every history, what comes last by the longest alone
    const at = this.#random(this.#random(2) ? points : 1 + this.#random(points));
    const how = (['fail', 'kill', 'cancel'] as const)[this.#random(isWorkflow ? 3 : 2)]!;
    return { at, how };
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

  get #committed(): boolean {
    return this.#operation.committed;
  }

  /** Runs it until its end or the kill; after a kill nothing of it goes on, and a new agent has the journal. */
  async #go(trouble: Trouble | null, work: () => Promise<void>): Promise<void> {
    this.#count = 0;
    this.#trouble = trouble;
    this.#world.isImpatient = trouble !== null;
    const killed = new Promise<never>((_resolve, reject) => {
      this.#kill = reject;
    });
    try {
      await Promise.race([this.#run.within(work), killed]);
    } catch (error) {
      if (!(error instanceof Killed)) throw error;
      await this.#run.die(fd => setLock(fd, 'none', WHOLE_FILE));
      await this.#world.scripted.finish(error.message);
      this.#journal.close();
      this.#journal = this.#open();
      this.#run = this.#begin();
      this.#operation = this.#adopt();
    } finally {
      this.#trouble = null;
      this.#world.isImpatient = false;
    }
    if (this.#violations.length > 0) throw new Error(this.#violations.join('\n'));
  }

  async #reach(point: string): Promise<void> {
    const trouble = this.#trouble;
    if (this.#failing === point) throw failureAt(point, 'fails for ever');
    // before the first effect there is nothing to be undone
    if (!trouble || (this.#count === 0 && this.#left().length === 0)) return;
    // what a file system has done has been done
    if (trouble.how === 'fail' && isOfFiles(point) && point.endsWith('.after')) return;
    // the line of a guest's agent is in the process, which here outlives the kill
    if (/^virDomain(QemuAgent|Agent)/.test(point) && trouble.how === 'kill') return;
    if (this.#count++ !== trouble.at) return;
    this.#log.push(`${trouble.how} at ${point}`);
    if (trouble.how === 'cancel') return this.#cancel();
    if (trouble.how === 'kill') {
      this.#kill(new Killed(point));
      await new Promise(() => {});
    }
    // every second failure is one that lasts
    if (this.#random(2)) this.#failing = point;
    throw failureAt(point, 'fails once');
  }

  /** By the user until the commit, by a stop of the agent afterwards. */
  #cancel(): void {
    this.#operation.abort(new VirtkeepError(this.#committed ? 'interrupted' : 'canceled'));
  }

  #begin(): RunOfAgent {
    const run = new RunOfAgent(this.#world.root, point => this.#reach(point));
    this.#runs.push(run);
    return run;
  }

  /** Its writes are points, too: what cannot be written is not declared, and not committed. */
  #open(): Journal {
    const journal = new Journal(join(this.#world.root, 'journal.db'));
    const declare = journal.addEffect.bind(journal);
    journal.addEffect = (id: string, effect: Effect, when: UndoWhen) => {
      this.#effects.add(effect.type);
      this.#reachJournal(`declaring ${effect.type}`);
      return declare(id, effect, when);
    };
    const commit = journal.commitOperation.bind(journal);
    journal.commitOperation = record => {
      this.#reachJournal('the commit');
      commit(record);
    };
    return journal;
  }

  #reachJournal(point: string): void {
    const trouble = this.#trouble;
    if (trouble?.how !== 'fail' || this.#left().length === 0 || this.#count++ !== trouble.at) return;
    this.#log.push(`fail at ${point}`);
    throw new VirtkeepError('journal_failed', { reason: point });
  }

  #adopt(): ActiveOperation {
    const record = this.#journal.operation(this.#id)!;
    const undo = undoEffects(this.#world.dependencies as never);
    return new ActiveOperation(record, {
      journal: this.#journal,
      log: silent,
      faults: this.#faults(),
      changed: ignore,
      undoEffect: async (effect, signal, warn, amend) => {
        await RunOfAgent.reach(`undo of ${effect.type}.before`);
        await undo(
          effect,
          signal,
          text => {
            this.#world.warnings.push(text);
            warn(text);
          },
          amend,
        );
        await this.#story.undone(effect, this.#committed).catch((error: Error) => {
          this.#violations.push(`${effect.type} counts as undone: ${error.message}`);
        });
        await RunOfAgent.reach(`undo of ${effect.type}.after`);
      },
    });
  }

  #faults(): Faults {
    const reach = (kind: string, step: string, when: string) => RunOfAgent.reach(`${kind}.${step}.${when}`);
    return { active: false, reach, middle: () => undefined } as unknown as Faults;
  }
}

const isOfFiles = (point: string): boolean => /^(?!undo of )\w+ /.test(point);

const WHOLE_FILE = { start: 0n, lengthBytes: 0n };

/** As libvirt, the file system or a step of the workflow fails. */
function failureAt(point: string, reason: string): Error {
  if (point.startsWith('vir') || point.startsWith('snapshot'))
    return refuse(ErrorCode.OPERATION_FAILED, `${point} ${reason}`);
  if (isOfFiles(point))
    return Object.assign(new Error(`EIO: ${point} ${reason}`), { code: 'EIO', errno: -5 });
  return new VirtkeepError('io_failed', { operation: 'inject', path: '', reason: `${point} ${reason}` });
}
