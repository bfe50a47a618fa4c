/** The agent as a process: how it starts, stops, and takes up what an earlier run left. */
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { PowerAction } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { Status } from 'nice-grpc';
import { Journal } from '../../../agent/src/operations/journal.ts';
import { rememberPlaces } from '../../../agent/src/pools/index.ts';
import type { Effect } from '../../../agent/src/workflows/effect.ts';
import { AgentChild, AgentHome, MOCK_DOMAIN, MOCK_LIBVIRT } from './agent-child.ts';

/** grpc.health.v1.HealthCheckResponse.ServingStatus */
const SERVING = 1;
const NOT_SERVING = 2;

// Each test starts processes, on machines that may be busy.

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
  // it knew the pools of its node; one that never saw any waits for libvirt to tell them
  rememberPlaces(journal.settings, []);
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
    result: undefined,
    sequence: BigInt(journal.nextSequence()),
    inventoryRevision: 0n,
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
  });
});

describe('recovery', () => {
  test('an interrupted operation is undone and ends FAILED, a committed one SUCCEEDED', async () => {
    home = await AgentHome.make();
    const [partial, temporary] = [join(home.directory, 'partial'), join(home.directory, 'temporary')];
    for (const path of [partial, temporary]) writeFileSync(path, 'x');
    // a part of an archive is no image: nobody is asked who uses it, so libvirt is not needed
    const archive = (partialPath: string): Effect => ({
      type: 'archive',
      backupId: newId(),
      partialPath,
      finalPath: `${partialPath}.tar`,
    });
    const failed = leaveOperation(archive(partial));
    const succeeded = leaveOperation(archive(temporary), true);
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

describe('an operation in the middle', () => {
  type Clients = Awaited<ReturnType<AgentHome['clients']>>;
  let clients: Clients | undefined;
  afterEach(() => clients?.channel.close());

  /** Starts an agent; resolves when it knows the mock's domain. */
  async function serveMock(faults: string): Promise<AgentChild> {
    const child = serve({ VIRTKEEP_FAULTS: faults });
    clients = await home.clients(await child.port());
    await until(async () => (await clients!.domains.list({})).domains.length > 0);
    return child;
  }

  function suspend(operationId: string) {
    return clients!.domains.setPower({ operationId, domainId: MOCK_DOMAIN, action: PowerAction.SUSPEND });
  }

  async function end(id: string, begun: () => void = () => {}): Promise<Operation> {
    let last: Operation | undefined;
    for await (const { operation } of clients!.operations.watch({ operationId: id })) {
      begun();
      last = operation;
    }
    return last!;
  }

  test('a start can be repeated; a stop lets it end, refuses new work meanwhile, and sends its last event', async () => {
    home = await AgentHome.make({ libvirt: { uri: MOCK_LIBVIRT }, shutdown: { drain_timeout_seconds: 600 } });
    const gate = join(home.directory, 'gate');
    const held = await serveMock(`power.check.before=pause:${gate}`);
    const id = newId();
    const first = await suspend(id);
    expect((await suspend(id)).created).toEqual(first.created);
    const other = clients!.domains.setPower({
      operationId: id,
      domainId: MOCK_DOMAIN,
      action: PowerAction.RESUME,
    });
    await expect(other).rejects.toMatchObject({
      msgKey: 'operation_conflict',
      cause: { code: Status.ALREADY_EXISTS },
    });
    await expect(suspend(newId())).rejects.toMatchObject({
      msgKey: 'domain_busy',
      params: { operation: id },
    });
    const ended = end(id);
    expect(await clients!.health.check({ service: '' })).toMatchObject({ status: SERVING });
    expect((await clients!.domains.get({ id: MOCK_DOMAIN })).lockedBy).toBe(id);
    held.process.kill('SIGTERM');
    await held.line('agent is draining');
    await expect(suspend(newId())).rejects.toMatchObject({ msgKey: 'draining' });
    expect(await clients!.health.check({ service: '' })).toMatchObject({ status: NOT_SERVING });
    writeFileSync(gate, '');
    expect((await ended).state).toBe(OperationState.SUCCEEDED);
    expect(await held.exited).toBe(0);
    expect(held.lines.map(line => line.state)).not.toContain('aborting');
  });

  test('after the time to drain it is aborted and ends FAILED', async () => {
    home = await AgentHome.make({ libvirt: { uri: MOCK_LIBVIRT }, shutdown: { drain_timeout_seconds: 1 } });
    const gate = join(home.directory, 'gate');
    const child = await serveMock(`power.check.before=pause:${gate}`);
    const id = newId();
    await suspend(id);
    const watching = Promise.withResolvers<void>();
    const ended = end(id, watching.resolve);
    await watching.promise;
    child.process.kill('SIGTERM');
    expect(await ended).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'interrupted' } });
    expect(await child.exited).toBe(0);
    expect(child.lines.map(line => line.state)).toContain('aborting');
  });

  test('killed in the middle, it is FAILED after the next start, and free again', async () => {
    home = await AgentHome.make({ libvirt: { uri: MOCK_LIBVIRT } });
    const child = await serveMock('power.act.before=kill');
    const id = newId();
    await suspend(id).catch(() => {}); // the agent may be gone before its answer
    expect(await child.exited).toBe('SIGKILL');
    clients!.channel.close();
    await serveMock('');
    expect(await end(id)).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'interrupted' } });
    await until(async () => (await clients!.domains.get({ id: MOCK_DOMAIN })).lockedBy === '');
    const next = newId();
    await suspend(next);
    expect((await end(next)).state).toBe(OperationState.SUCCEEDED);
  });
});

async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise(resolve => setTimeout(resolve, 20));
}
