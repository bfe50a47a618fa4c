/** The agent as a process: how it starts, stops, and takes up what an earlier run left. */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Journal } from '../../agent/src/operations/journal.ts';
import type { Effect } from '../../agent/src/workflows/context.ts';
import { OperationState } from '../../shared/src/gen/virtkeep/agent/v1/operation.ts';
import { newId } from '../../shared/src/ids.ts';
import { AgentChild, AgentHome } from './agent-child.ts';

let home: AgentHome;
let children: AgentChild[];

beforeEach(() => {
  children = [];
});
afterEach(async () => {
  for (const child of children) {
    child.process.kill('SIGKILL');
    await child.exited;
  }
  home.remove();
});

function serve(environment?: Record<string, string>): AgentChild {
  const child = AgentChild.serve(home, environment);
  children.push(child);
  return child;
}

/** As if an agent had been killed in the middle of an operation with this effect. */
function leaveOperation(effect: Effect, committed = false): string {
  const journal = new Journal(join(home.directory, 'journal.db'));
  const id = newId();
  const message = {
    id,
    kind: 'backup',
    state: OperationState.RUNNING,
    entities: [],
    created: new Date(),
    finished: undefined,
    progress: undefined,
    error: undefined,
    cancellable: true,
    warnings: [],
    resultJson: committed ? '{}' : '',
    sequence: BigInt(journal.nextSequence()),
  };
  journal.insertOperation({ message, fingerprint: '', locks: [], committed });
  journal.addEffect(id, effect, 'always');
  journal.close();
  return id;
}

function stored(id: string) {
  const journal = new Journal(join(home.directory, 'journal.db'));
  const found = { operation: journal.operation(id)?.message, effects: journal.effects(id) };
  journal.close();
  return found;
}

describe('start', () => {
  test('serves without libvirt, and ends with 0 at SIGTERM', async () => {
    home = await AgentHome.make();
    const child = serve();
    await child.port();
    await child.line('libvirt is not reachable');
    child.process.kill('SIGTERM');
    expect(await child.exited).toBe(0);
    const states = child.lines.map(line => line.state).filter(state => state !== undefined);
    expect(states).toEqual(['serving', 'draining', 'stopped']);
  });

  test('a bad setting ends it with 78 and names the key', async () => {
    home = await AgentHome.make();
    home.write({ listen: { prot: 1 } });
    const child = serve();
    expect(await child.exited).toBe(78);
    expect(child.text).toContain('listen: Unrecognized key: "prot"');
  });

  test('a node that is not enrolled is told how to', async () => {
    home = await AgentHome.make();
    home.write({ state_dir: join(home.directory, 'other') });
    const child = serve();
    expect(await child.exited).toBe(78);
    expect(child.text).toContain('virtkeep-agent enroll');
  });

  test('a second agent on the same state ends with 1', async () => {
    home = await AgentHome.make();
    const first = serve();
    await first.port();
    const second = serve();
    expect(await second.exited).toBe(1);
    expect(second.text).toContain('journal');
  }, 15_000);
});

describe('recovery', () => {
  test('an interrupted operation is undone and ends FAILED, a committed one SUCCEEDED', async () => {
    home = await AgentHome.make();
    const [partial, temporary] = [join(home.directory, 'partial'), join(home.directory, 'temporary')];
    for (const path of [partial, temporary]) writeFileSync(path, 'x');
    const failed = leaveOperation({ type: 'file', path: partial });
    const succeeded = leaveOperation({ type: 'file', path: temporary }, true);
    const child = serve();
    await child.port();
    while (existsSync(partial) || existsSync(temporary))
      await new Promise(resolve => setTimeout(resolve, 10));
    child.process.kill('SIGTERM');
    expect(await child.exited).toBe(0);
    expect(stored(failed)).toMatchObject({
      operation: { state: OperationState.FAILED, error: { msgKey: 'interrupted' } },
      effects: [],
    });
    expect(stored(succeeded)).toMatchObject({ operation: { state: OperationState.SUCCEEDED }, effects: [] });
  });
});

describe('stop while something cannot be undone', () => {
  const thaw: Effect = { type: 'frozen_guest', domainId: newId() };

  test('draining, then aborting, each for its time; what is left is taken up by the next run', async () => {
    home = await AgentHome.make({ shutdown: { drain_timeout_seconds: 1, undo_timeout_seconds: 1 } });
    const id = leaveOperation(thaw);
    const child = serve();
    await child.port();
    child.process.kill('SIGTERM');
    expect(await child.exited).toBe(0);
    const states = child.lines.map(line => line.state).filter(state => state !== undefined);
    expect(states).toEqual(['serving', 'draining', 'aborting', 'stopped']);
    expect(stored(id)).toMatchObject({
      operation: { state: OperationState.RUNNING },
      effects: [{ effect: thaw }],
    });
  });

  test('a second signal aborts at once, a third ends the agent', async () => {
    home = await AgentHome.make({ shutdown: { drain_timeout_seconds: 600, undo_timeout_seconds: 600 } });
    leaveOperation(thaw);
    const child = serve();
    await child.port();
    for (const state of ['draining', 'aborting', 'stopped']) {
      child.process.kill('SIGINT');
      await child.line(`agent is ${state}`);
    }
    expect(await child.exited).toBe(0);
  });
});
