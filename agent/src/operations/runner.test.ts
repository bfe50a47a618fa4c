import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import { type Result, resultFields } from '@virtkeep/shared/operation-result';
import type { OperationContext, Workflow } from '../workflows/context.ts';
import type { Effect } from '../workflows/effect.ts';
import { Faults } from './faults.ts';
import { Journal } from './journal.ts';
import { OperationRunner, type RunnerDependencies, type StartOptions } from './runner.ts';

const DOMAIN = newId();
let directory: string;
let journal: Journal;
let runner: OperationRunner;
let undone: string[];
let undoFails: (effect: Effect) => boolean;

const ignore = () => silent;
const silent = {
  error: ignore,
  warn: ignore,
  info: ignore,
  debug: ignore,
  child: ignore,
} as unknown as Logger;

const file = (path: string): Effect => ({ type: 'file', path });

async function undoEffect(effect: Effect, signal: AbortSignal): Promise<void> {
  throwIfAborted(signal);
  if (undoFails(effect)) throw new VirtkeepError('libvirt_unreachable', { uri: 'test', reason: 'down' });
  undone.push(effect.type === 'file' ? effect.path : effect.type);
}

const TIMES = { patienceMs: 60, minDelayMs: 10, maxDelayMs: 20 };

function newRunner(options: Partial<RunnerDependencies> = {}): OperationRunner {
  return new OperationRunner({
    journal,
    log: silent,
    undoEffect,
    refuseCopies: async () => {},
    faults: Faults.parse(''),
    concurrentOperations: 2,
    times: TIMES,
    ...options,
  });
}

function options(workflow: Workflow, more: Partial<StartOptions> = {}): StartOptions {
  const locks: StartOptions['locks'] = [{ kind: 'domain', id: DOMAIN, mode: 'exclusive' }];
  const base = { id: newId(), kind: 'backup', request: {}, entities: [], cancellable: true, locks };
  return { ...base, workflow, ...more };
}

/** Some result that names somebody. */
const heldBy = (holder = 'nobody'): Result => ({ $case: 'keepLoans', value: { waiting: [holder] } });

async function ended(id: string, of: OperationRunner = runner): Promise<Operation> {
  for await (const { operation } of of.watch(0, id, AbortSignal.timeout(240_000))) {
    if (operation!.state !== OperationState.RUNNING) return operation!;
  }
  throw new Error('the stream ended before the operation');
}

/** Waits until the workflow of a test says that it came so far. */
function reached(): { here: () => void; seen: Promise<void> } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { here: resolve, seen: promise };
}

/** Polls; the test's own limit ends what never comes. */
async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise(resolve => setTimeout(resolve, 5));
}

function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
}

/** As after a kill: nothing of the old runner goes on, a new agent opens the journal. */
function crash(times: RunnerDependencies['times'] = TIMES): OperationRunner {
  runner.close();
  journal.close();
  journal = new Journal(join(directory, 'journal.db'));
  return newRunner({ times: { ...TIMES, ...times } });
}

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-runner-'));
  journal = new Journal(join(directory, 'journal.db'));
  undone = [];
  undoFails = () => false;
  runner = newRunner();
});

afterEach(() => {
  runner.close();
  journal.close();
  rmSync(directory, { recursive: true });
});

describe('start', () => {
  test('one that was given up as not begun is not begun by a call that arrives later', async () => {
    const [givenUp, asked] = [newId(), newId()];
    const unknown = expect.objectContaining({ msgKey: 'operation_not_found' });
    expect(() => runner.get(givenUp, true)).toThrow(unknown);
    expect(() => runner.get(asked)).toThrow(unknown);
    const late = () => runner.start(options(async () => {}, { id: givenUp }));
    expect(late).toThrow(expect.objectContaining({ msgKey: 'canceled' }));
    expect(journal.operation(givenUp)).toBeUndefined();
    runner.start(options(async () => {}, { id: asked }));
    expect((await ended(asked)).id).toBe(asked);
    expect(runner.get(asked, true).id).toBe(asked);
    runner.start(options(async () => {}, { id: asked }));
  });

  test('runs a workflow to its committed result and undoes only the "always" effects, newest first', async () => {
    const { id } = runner.start(
      options(async context => {
        context.effects.begin(file('/a'), 'always');
        context.effects.begin(file('/b'), 'failure');
        context.effects.begin(file('/c'), 'always');
        context.warn('small trouble');
        context.commit({ $case: 'sysprep', value: { action: 'quit' } });
      }),
    );
    const operation = await ended(id);
    expect(operation).toMatchObject({
      state: OperationState.SUCCEEDED,
      ...resultFields({ $case: 'sysprep', value: { action: 'quit' } }),
      warnings: ['small trouble'],
    });
    expect(undone).toEqual(['/c', '/a']);
    expect(journal.effects(id)).toEqual([]);
    expect(runner.holderOf('domain', DOMAIN)).toBeUndefined();
  });

  test('begins no work on a stale copy of a VM, unless it may, and is told of all that it holds', async () => {
    const asked: string[][] = [];
    const refuseCopies = async (ids: readonly string[]) => {
      asked.push([...ids]);
      throw new VirtkeepError('domain_elsewhere', { domain: 'vm', node: 'n1', other: 'n2' });
    };
    const other = newId();
    runner = newRunner({ refuseCopies });
    let began = 0;
    const workflow: Workflow = async context => {
      began++;
      context.commit();
    };
    const locks: StartOptions['locks'] = [
      { kind: 'domain', id: DOMAIN, mode: 'exclusive' },
      { kind: 'power', id: DOMAIN, mode: 'exclusive' },
      { kind: 'power', id: other, mode: 'shared' },
      { kind: 'file', id: '/a.tar', mode: 'shared' },
    ];
    const refused = await ended(runner.start(options(workflow, { locks })).id);
    expect([refused.error?.msgKey, began, asked]).toEqual(['domain_elsewhere', 0, [[DOMAIN, other]]]);
    await ended(runner.start(options(workflow, { locks, mayBeCopies: [DOMAIN] })).id);
    expect([began, asked[1]]).toEqual([0, [other]]);
    await ended(runner.start(options(workflow, { locks, mayBeCopies: 'all' })).id);
    await ended(runner.start(options(workflow, { locks: [] })).id);
    expect([began, asked.length]).toEqual([2, 2]);
  });

  test('the same id and request is the same operation, another request a conflict', async () => {
    let runs = 0;
    const first = options(
      async context => {
        runs++;
        context.commit();
      },
      { request: { a: 1, b: { c: 2n } } },
    );
    runner.start(first);
    expect(runner.start({ ...first, request: { b: { c: 2n }, a: 1 } }).id).toBe(first.id);
    await ended(first.id);
    expect(runner.start(first).state).toBe(OperationState.SUCCEEDED);
    expect(runs).toBe(1);
    expect(() => runner.start({ ...first, request: { a: 2 } })).toThrow(
      expect.objectContaining({ msgKey: 'operation_conflict' }),
    );
    expect(() => runner.start({ ...first, id: 'x' })).toThrow(
      expect.objectContaining({ msgKey: 'invalid_uuid' }),
    );
  });

  test('a lock refuses a second operation and names the holder; shared locks go together', async () => {
    const holder = options(context => untilAborted(context.signal));
    runner.start(holder);
    const refused = expect.objectContaining({
      msgKey: 'domain_busy',
      params: { domain: DOMAIN, operation: holder.id, kind: 'backup' },
    });
    expect(() => runner.start(options(async () => {}))).toThrow(refused);
    const shared: StartOptions['locks'] = [{ kind: 'file', id: '/f', mode: 'shared' }];
    const one = runner.start(options(context => untilAborted(context.signal), { locks: shared }));
    runner.start(options(context => untilAborted(context.signal), { locks: shared }));
    expect(() =>
      runner.start(options(async () => {}, { locks: [{ ...shared[0]!, mode: 'exclusive' }] })),
    ).toThrow(expect.objectContaining({ msgKey: 'file_busy' }));
    expect(runner.get(one.id).state).toBe(OperationState.RUNNING);
    runner.abortAll();
    await runner.idle(AbortSignal.timeout(240_000));
  });

  test('what holds a lock without being an operation refuses and is refused alike', async () => {
    const lock = { kind: 'file', id: '/a', mode: 'shared' } as const;
    const release = runner.hold('download', [lock]);
    const work = () =>
      options(async context => context.commit(), { locks: [{ ...lock, mode: 'exclusive' }] });
    expect(() => runner.start(work())).toThrow(expect.objectContaining({ msgKey: 'file_busy' }));
    const other = runner.hold('download', [lock]);
    release();
    expect(() => runner.start(work())).toThrow(
      expect.objectContaining({ params: expect.objectContaining({ kind: 'download' }) }),
    );
    other();
    await ended(runner.start(work()).id);
  });

  test('more heavy operations than places wait visibly, and can be cancelled there', async () => {
    const hold = (context: { signal: AbortSignal }) => untilAborted(context.signal);
    const running = [1, 2].map(() => runner.start(options(hold, { locks: [] })));
    const queued = runner.start(options(hold, { locks: [] }));
    const light = runner.start(options(async context => context.commit(), { locks: [], heavy: false }));
    expect((await ended(light.id)).state).toBe(OperationState.SUCCEEDED);
    expect(runner.get(queued.id).progress?.phase).toBe('queued');
    runner.cancel(queued.id);
    expect((await ended(queued.id)).state).toBe(OperationState.CANCELED);
    runner.cancel(running[0]!.id);
    await ended(running[0]!.id);
  });

  test('nothing starts when the journal cannot be written', () => {
    journal.close();
    expect(() => runner.start(options(async () => {}))).toThrow(
      expect.objectContaining({ msgKey: 'journal_failed' }),
    );
    expect(runner.holderOf('domain', DOMAIN)).toBeUndefined();
    journal = new Journal(join(directory, 'journal.db'));
  });

  test('a draining runner takes nothing new but answers what it knows', async () => {
    const known = options(async context => context.commit());
    runner.start(known);
    runner.drain();
    await ended(known.id);
    expect(runner.start(known).state).toBe(OperationState.SUCCEEDED);
    expect(() => runner.start(options(async () => {}))).toThrow(
      expect.objectContaining({ msgKey: 'draining' }),
    );
  });
});

describe('locks that depend on how things are', () => {
  const power = { kind: 'power', id: DOMAIN, mode: 'exclusive' } as const;
  const holder = () => runner.holderOf('power', DOMAIN)?.operationId;

  /** Takes the only place until it is told to leave. */
  function crowded(): { leave: () => void } {
    runner.close();
    runner = newRunner({ concurrentOperations: 1 });
    const { here: leave, seen } = reached();
    const work: Workflow = async context => {
      await seen;
      context.commit();
    };
    runner.start(options(work, { locks: [] }));
    return { leave };
  }

  test('are taken with the others, or refused, when it starts at once', async () => {
    let asked = 0;
    const again = async () => {
      asked++;
      return [];
    };
    const work: Workflow = async context => context.commit(heldBy(holder()));
    const release = runner.hold('power', [power]);
    const refused = options(work, { further: { now: [power], again } });
    expect(() => runner.start(refused)).toThrow(expect.objectContaining({ msgKey: 'domain_busy' }));
    release();
    const { id } = runner.start(options(work, { further: { now: [power], again } }));
    expect(await ended(id)).toMatchObject(resultFields(heldBy(id)));
    expect(asked).toBe(0);
  });

  test('are decided when its turn comes; an operation that waits does without them', async () => {
    const { leave } = crowded();
    const work: Workflow = async context => context.commit(heldBy(holder()));
    const further = { now: [], again: async () => [power] };
    const { id } = runner.start(options(work, { further }));
    const other = runner.start(
      options(work, { locks: [], further: { now: [power], again: async () => [] } }),
    );
    expect(holder()).toBeUndefined();
    leave();
    expect(await ended(id)).toMatchObject(resultFields(heldBy(id)));
    expect((await ended(other.id)).state).toBe(OperationState.SUCCEEDED);
    await until(() => holder() === undefined);
  });

  test('end the operation that cannot have them when its turn comes, and those behind it go on', async () => {
    const { leave } = crowded();
    const release = runner.hold('power', [power]);
    const further = { now: [], again: async () => [power] };
    let ran = false;
    const work: Workflow = async () => {
      ran = true;
    };
    const { id } = runner.start(options(work, { further }));
    const behind = runner.start(options(async context => context.commit(), { locks: [] }));
    leave();
    expect((await ended(id)).error).toMatchObject({ msgKey: 'domain_busy', params: { kind: 'power' } });
    expect((await ended(behind.id)).state).toBe(OperationState.SUCCEEDED);
    expect(ran).toBe(false);
    expect(runner.holderOf('domain', DOMAIN)).toBeUndefined();
    release();
  });

  test('are held again after a crash, until everything is undone', async () => {
    const { leave } = crowded();
    const { here, seen } = reached();
    const work: Workflow = async context => {
      context.effects.begin(file('/a'), 'failure');
      here();
      await new Promise(() => {});
    };
    const { id } = runner.start(options(work, { further: { now: [], again: async () => [power] } }));
    leave();
    await seen;
    undoFails = () => true;
    runner = crash();
    runner.recover();
    expect(holder()).toBe(id);
    undoFails = () => false;
    await ended(id);
    await until(() => holder() === undefined);
    expect(undone).toEqual(['/a']);
  });

  test('are not held by one that a crash found waiting', async () => {
    crowded();
    const further = { now: [power], again: async () => [power] };
    const { id } = runner.start(options(async () => {}, { further }));
    runner = crash();
    runner.recover();
    expect(holder()).toBeUndefined();
    expect(runner.holderOf('domain', DOMAIN)?.operationId).toBe(id);
    expect((await ended(id)).error).toMatchObject({ msgKey: 'interrupted' });
  });
});

describe('what is held as things are, by work that takes long', () => {
  const power = { kind: 'power', id: DOMAIN, mode: 'exclusive' } as const;
  const holder = () => runner.holderOf('power', DOMAIN)?.operationId;
  const lockNow = async () => [power];
  const locksOf = (id: string) => journal.operation(id)?.locks;
  const domain = { kind: 'domain', id: DOMAIN, mode: 'exclusive' };

  test('is given back for the while and taken as things are then, once, in the journal too', async () => {
    const seen: unknown[] = [];
    let isOff = true;
    const work: Workflow = async ({ id, hold, commit }) => {
      const look = () => seen.push([holder() === id, locksOf(id)?.length]);
      look();
      hold.loosen();
      look();
      runner.hold('power', [power])();
      await hold.renew();
      await hold.renew();
      look();
      hold.loosen();
      isOff = false;
      await hold.renew();
      look();
      commit();
    };
    const again = async () => (isOff ? [power] : []);
    const { id } = runner.start(options(work, { further: { now: [power], again } }));
    expect(await ended(id)).toMatchObject({ state: OperationState.SUCCEEDED });
    expect(seen).toEqual([
      [true, 2],
      [false, 1],
      [true, 2],
      [false, 1],
    ]);
    expect(locksOf(id)).toEqual([domain]);
    await until(() => runner.holderOf('domain', DOMAIN) === undefined);
    expect(holder()).toBeUndefined();
  });

  test('is refused when another has it, who keeps it', async () => {
    const release: (() => void)[] = [];
    const work: Workflow = async ({ hold }) => {
      hold.loosen();
      release.push(runner.hold('power', [power]));
      await hold.renew();
    };
    const { id } = runner.start(options(work, { further: { now: [power], again: lockNow } }));
    expect((await ended(id)).error).toMatchObject({ msgKey: 'domain_busy', params: { kind: 'power' } });
    await until(() => runner.holderOf('domain', DOMAIN) === undefined);
    expect(runner.holderOf('power', DOMAIN)?.kind).toBe('power');
    release[0]!();
    expect(holder()).toBeUndefined();
  });

  test('ends with a VM that became a copy of another node’s', async () => {
    let isCopy = false;
    const refuseCopies = async () => {
      if (isCopy) throw new VirtkeepError('domain_elsewhere', { domain: 'vm', node: 'n1', other: 'n2' });
    };
    runner.close();
    runner = newRunner({ refuseCopies });
    const work: Workflow = async ({ hold, commit }) => {
      isCopy = true;
      await hold.renew();
      commit();
    };
    const refused = await ended(runner.start(options(work)).id);
    expect(refused.error?.msgKey).toBe('domain_elsewhere');
    isCopy = false;
    const allowed = await ended(runner.start(options(work, { mayBeCopies: [DOMAIN] })).id);
    expect(allowed.state).toBe(OperationState.SUCCEEDED);
  });

  test('is not waited for by a cancel, and not taken after it', async () => {
    const { here, seen } = reached();
    const answer = Promise.withResolvers<[typeof power]>();
    const again = () => {
      here();
      return answer.promise;
    };
    const work: Workflow = async ({ hold, commit }) => {
      await hold.renew();
      commit();
    };
    const { id } = runner.start(options(work, { further: { now: [], again } }));
    await seen;
    runner.cancel(id);
    expect((await ended(id)).state).toBe(OperationState.CANCELED);
    answer.resolve([power]);
    await until(() => runner.holderOf('domain', DOMAIN) === undefined);
    expect(holder()).toBeUndefined();
  });

  test.each([
    ['not held after a crash in between', false],
    ['held after a crash behind it', true],
  ])('is %s', async (_, isRenewed) => {
    const { here, seen } = reached();
    const work: Workflow = async context => {
      context.effects.begin(file('/a'), 'failure');
      context.hold.loosen();
      if (isRenewed) await context.hold.renew();
      here();
      await new Promise(() => {});
    };
    const { id } = runner.start(options(work, { further: { now: [power], again: lockNow } }));
    await seen;
    undoFails = () => true;
    runner = crash();
    runner.recover();
    expect([runner.holderOf('domain', DOMAIN)?.operationId, holder()]).toEqual([
      id,
      isRenewed ? id : undefined,
    ]);
    undoFails = () => false;
    await ended(id);
    await until(() => runner.holderOf('domain', DOMAIN) === undefined);
  });
});

describe('failure and cancel', () => {
  test('a failed operation undoes all, under signals of its own', async () => {
    const { id } = runner.start(
      options(async context => {
        context.effects.begin(file('/a'), 'failure');
        context.effects.begin(file('/kept'), 'failure').keep();
        const handle = context.effects.begin(file('/b'), 'always');
        await handle.undo(context.signal);
        throw new VirtkeepError('disk_full', { path: '/a' });
      }),
    );
    const operation = await ended(id);
    expect(operation).toMatchObject({
      state: OperationState.FAILED,
      error: { msgKey: 'disk_full', params: { path: '/a' } },
    });
    expect(undone).toEqual(['/b', '/a']);
  });

  test('anything unknown becomes internal; a workflow without a commit too', async () => {
    const thrown = runner.start(options(() => Promise.reject(new Error('bug')), { locks: [] }));
    const forgot = runner.start(options(async () => {}, { locks: [] }));
    expect((await ended(thrown.id)).error?.msgKey).toBe('internal');
    expect((await ended(forgot.id)).error?.msgKey).toBe('internal');
  });

  test('cancel undoes and ends CANCELED; repeated it answers the same', async () => {
    const copying = reached();
    const { id } = runner.start(
      options(async context => {
        context.effects.begin(file('/a'), 'failure');
        await context.step('copy', () => {
          copying.here();
          return untilAborted(context.signal);
        });
      }),
    );
    await copying.seen;
    expect(runner.cancel(id).cancellable).toBe(false);
    runner.cancel(id);
    expect(await ended(id)).toMatchObject({ state: OperationState.CANCELED, error: { msgKey: 'canceled' } });
    expect(runner.cancel(id).state).toBe(OperationState.CANCELED);
    expect(undone).toEqual(['/a']);
  });

  test('after the commit a cancel is refused, and an error is a warning', async () => {
    const reached = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    const { id } = runner.start(
      options(async context => {
        context.commit();
        reached.resolve();
        await go.promise;
        throw new VirtkeepError('merge_failed', { state: 's', domain: DOMAIN, reason: 'busy' });
      }),
    );
    await reached.promise;
    expect(() => runner.cancel(id)).toThrow(expect.objectContaining({ msgKey: 'not_cancellable' }));
    go.resolve();
    const operation = await ended(id);
    expect(operation.state).toBe(OperationState.SUCCEEDED);
    expect(operation.warnings).toHaveLength(1);
  });

  test('a cancel before the commit is honoured by it', async () => {
    const { id } = runner.start(
      options(async context => {
        runner.cancel(context.id);
        context.commit();
      }),
    );
    expect((await ended(id)).state).toBe(OperationState.CANCELED);
  });

  test('an undo that fails is tried again; then the operation ends, keeps its lock, and the trying goes on', async () => {
    undoFails = effect => effect.type === 'frozen_guest';
    const { id } = runner.start(
      options(async context => {
        context.effects.begin(file('/a'), 'failure');
        context.effects.begin({ type: 'frozen_guest', domainId: DOMAIN }, 'always');
        throw new VirtkeepError('disk_full', { path: '/a' });
      }),
    );
    const operation = await ended(id);
    expect(operation.state).toBe(OperationState.FAILED);
    expect(operation.warnings[0]).toContain('frozen_guest');
    expect(undone).toEqual(['/a']);
    expect(runner.holderOf('domain', DOMAIN)?.operationId).toBe(id);
    undoFails = () => false;
    runner.retryNow();
    await until(() => runner.holderOf('domain', DOMAIN) === undefined);
    expect(undone).toEqual(['/a', 'frozen_guest']);
    expect(journal.effects(id)).toEqual([]);
  });

  test('a guest that cannot be thawed yet is asked again and again, and keeps nothing else', async () => {
    const tries: string[] = [];
    let answers = false;
    const thawing = async (effect: Effect, signal: AbortSignal) => {
      tries.push(effect.type);
      if (effect.type === 'frozen_guest' && !answers) await untilAborted(signal);
    };
    const times = { ...TIMES, patienceMs: 1, thawTimeoutMs: 5, maxDelayMs: 3_600_000 };
    runner = newRunner({ undoEffect: thawing, times });
    const { id } = runner.start(
      options(async context => {
        context.effects.begin(file('/a'), 'failure');
        context.effects.begin({ type: 'frozen_guest', domainId: DOMAIN }, 'always');
        throw new VirtkeepError('canceled');
      }),
    );
    await ended(id);
    expect(tries.slice(0, 2)).toEqual(['frozen_guest', 'file']);
    // delays that double would be hours by then
    await until(() => tries.length >= 22);
    answers = true;
    await until(() => runner.holderOf('domain', DOMAIN) === undefined);
    expect(tries.filter(type => type === 'file')).toHaveLength(1);
  });

  test('a VM that runs from an archive keeps its operation running until it has its data', async () => {
    let tries = 0;
    undoFails = effect => effect.type === 'instant_pull' && ++tries > 0;
    const { id } = runner.start(
      options(async context => {
        const pull = { domainId: DOMAIN, archivePath: '/a.tar', bandwidth: 0, disks: [] };
        context.effects.begin({ type: 'instant_pull', ...pull }, 'always');
        context.commit(heldBy());
        throw new VirtkeepError('disk_full', { path: '/disk' });
      }),
    );
    // more of them than there is patience for
    await until(() => tries > (2 * TIMES.patienceMs) / TIMES.minDelayMs);
    expect(runner.get(id).state).toBe(OperationState.RUNNING);
    undoFails = () => false;
    expect(await ended(id)).toMatchObject({ state: OperationState.SUCCEEDED, warnings: [expect.anything()] });
  });
});

describe('recovery', () => {
  test('an interrupted operation is undone and ends FAILED; its lock holds until then', async () => {
    const begun = reached();
    const { id } = runner.start(
      options(async context => {
        context.effects.begin(file('/a'), 'failure');
        context.effects.begin(file('/b'), 'always');
        begun.here();
        await new Promise(() => {});
      }),
    );
    await begun.seen;
    let tries = 0;
    undoFails = () => ++tries > 0;
    runner = crash({ patienceMs: 240_000 });
    runner.recover();
    expect(() => runner.start(options(async () => {}))).toThrow(
      expect.objectContaining({ msgKey: 'domain_busy' }),
    );
    // neither waits for the other
    await until(() => tries > 1);
    expect(runner.get(id).state).toBe(OperationState.RUNNING);
    undoFails = () => false;
    expect(await ended(id)).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'interrupted' } });
    expect(undone).toEqual(['/b', '/a']);
    await until(() => runner.holderOf('domain', DOMAIN) === undefined);
  });

  test('a committed one ends SUCCEEDED with its result, "failure" effects untouched', async () => {
    const committed = reached();
    const { id } = runner.start(
      options(async context => {
        context.effects.begin(file('/a'), 'failure');
        context.effects.begin(file('/b'), 'always');
        context.commit(heldBy('x'));
        committed.here();
        await new Promise(() => {});
      }),
    );
    await committed.seen;
    runner = crash();
    runner.recover();
    expect(await ended(id)).toMatchObject({
      state: OperationState.SUCCEEDED,
      ...resultFields(heldBy('x')),
    });
    expect(undone).toEqual(['/b']);
  });

  test('what a result replaces goes only when it is committed, also after a crash', async () => {
    const replacing = (commit: boolean, begun: () => void) =>
      options(async context => {
        context.effects.begin(file('/new'), 'failure');
        context.effects.begin(file('/old'), 'success');
        if (commit) context.commit();
        begun();
        await untilAborted(context.signal);
      });
    for (const commit of [false, true]) {
      undone = [];
      const begun = reached();
      const { id } = runner.start(replacing(commit, begun.here));
      await begun.seen;
      runner = crash();
      runner.recover();
      await ended(id);
      expect(undone).toEqual([commit ? '/old' : '/new']);
      expect(journal.effects(id)).toEqual([]);
    }
  });

  test('what an ended operation left is tried again by the next run, under its lock', async () => {
    undoFails = () => true;
    const { id } = runner.start(
      options(async context => {
        context.effects.begin(file('/a'), 'always');
        context.commit();
      }),
    );
    expect((await ended(id)).state).toBe(OperationState.SUCCEEDED);
    runner = crash();
    runner.recover();
    expect(runner.holderOf('domain', DOMAIN)?.operationId).toBe(id);
    undoFails = () => false;
    await until(() => runner.holderOf('domain', DOMAIN) === undefined);
    expect(undone).toEqual(['/a']);
  });
});

describe('watch', () => {
  test('sequences grow, also across restarts, and a resumed stream gets only what is newer', async () => {
    const first = runner.start(options(async context => context.commit(), { locks: [] }));
    const seen = Number((await ended(first.id)).sequence);
    runner = crash();
    runner.recover();
    const second = runner.start(options(async context => context.commit(), { locks: [] }));
    await ended(second.id);
    const stop = new AbortController();
    for await (const event of runner.watch(seen, '', stop.signal)) {
      expect(Number(event.sequence)).toBeGreaterThan(seen);
      expect(event.operation?.id).toBe(second.id);
      break;
    }
    const all: string[] = [];
    for await (const event of runner.watch(Number.MAX_SAFE_INTEGER, '', stop.signal)) {
      all.push(event.operation!.id);
      if (all.length === 2) break;
    }
    expect(all).toEqual([first.id, second.id]);
  });

  test('the stream of an ended operation ends; of an unknown one there is none; closing ends all', async () => {
    const { id } = runner.start(options(async context => context.commit()));
    const last = await ended(id);
    for await (const _ of runner.watch(Number(last.sequence), id, AbortSignal.timeout(240_000)))
      throw new Error('nothing is newer');
    expect(() => runner.watch(0, newId(), AbortSignal.timeout(240_000))).toThrow(
      expect.objectContaining({ msgKey: 'operation_not_found' }),
    );
    const signal = AbortSignal.timeout(240_000);
    const stream = runner.watch(Number(last.sequence), '', signal)[Symbol.asyncIterator]();
    const next = stream.next();
    runner.close();
    expect((await next).done).toBe(true);
  });
});

describe('list', () => {
  test('newest first, running ones with their live state', async () => {
    const first = runner.start(options(async context => context.commit(), { locks: [] }));
    await ended(first.id);
    await until(() => Date.now() > first.created!.getTime());
    const second = runner.start(options(context => untilAborted(context.signal), { locks: [] }));
    expect(runner.list(false).operations.map(operation => operation.id)).toEqual([second.id, first.id]);
    expect(runner.list(true).operations.map(operation => operation.id)).toEqual([second.id]);
    runner.cancel(second.id);
    await ended(second.id);
  });
});

describe('the inventory in which an end is seen', () => {
  const OTHER = newId();
  /** What others see: each lock that is taken or given back, and each look, is a change. */
  let shown: {
    revision: bigint;
    held: boolean;
    looks: string[][];
    look(ids: readonly string[]): Promise<void>;
  };

  beforeEach(() => {
    runner.close();
    shown = {
      revision: 1n,
      held: false,
      looks: [],
      async look(ids) {
        await new Promise(setImmediate);
        this.looks.push([...ids]);
        this.revision += 1n;
      },
    };
    const locksChanged = () => {
      shown.held = runner.holderOf('domain', DOMAIN) !== undefined;
      shown.revision += 1n;
    };
    runner = newRunner({ inventory: shown, locksChanged });
  });

  const entities = [
    { id: OTHER, entityClass: EntityClass.DOMAIN },
    { id: newId(), entityClass: EntityClass.FILE },
  ];

  test('has been looked at, whatever the end, and shows what it held as free', async () => {
    for (const work of [async ({ commit }: OperationContext) => commit(), async () => {}]) {
      const { id, inventoryRevision } = runner.start(options(work, { entities }));
      expect([inventoryRevision, shown.held]).toEqual([0n, true]);
      const end = await ended(id);
      expect(end.inventoryRevision).toBe(shown.revision);
      expect(shown).toMatchObject({ held: false });
      expect(shown.looks.pop()).toEqual([OTHER, DOMAIN]);
      expect(journal.operation(id)?.message.inventoryRevision).toBe(end.inventoryRevision);
    }
  });

  test('shows it as held while something is left to be undone', async () => {
    undoFails = () => true;
    const { id } = runner.start(
      options(async ({ effects, commit }) => {
        effects.begin(file('/left'), 'always');
        commit();
      }),
    );
    expect((await ended(id)).inventoryRevision).toBe(shown.revision);
    expect(shown.held).toBe(true);
    undoFails = () => false;
    await until(() => !shown.held);
  });

  test('shows it as held again when the end cannot be written, until it is', async () => {
    const updateOperation = journal.updateOperation.bind(journal);
    let refused = 0;
    jest.spyOn(journal, 'updateOperation').mockImplementation(record => {
      if (record.message.finished && refused < 2) {
        refused += 1;
        expect(shown.held).toBe(false);
        throw new VirtkeepError('journal_failed', { path: 'test', reason: 'full' });
      }
      updateOperation(record);
    });
    const { id } = runner.start(options(async ({ commit }) => commit()));
    await until(() => refused === 1);
    expect(shown.held).toBe(true);
    expect((await ended(id)).inventoryRevision).toBe(shown.revision);
    expect([refused, shown.held]).toEqual([2, false]);
  });
});
