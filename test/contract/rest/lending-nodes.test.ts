/** Lending disks between two nodes that share a data pool: one task, up to three operations, and what goes wrong. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { Disk, type Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { createNodeServices } from '../../../controller/src/services/node-services.ts';
import type { NodeServices } from '../../../controller/src/services/services.ts';
import { makeRestApp, NODE_TIMES, type RestApp } from './app.ts';
import { goOn, LENT, lendHonestly } from './fake-lending.ts';
import { type Enrolled, ended, enrolled, status, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
let running: NodeServices;
let home: Enrolled;
let afar: Enrolled;
/** The node of the owner, and that of the borrower. */
let owning: FakeAgent;
let borrowing: FakeAgent;
let owner: Domain;
let borrower: Domain;
let vdisk: string;

beforeAll(async () => {
  rest = await makeRestApp({ agents: { lost_after_s: 600 } });
  running = rest.services;
  home = await enrolled(rest, 'home');
  afar = await enrolled(rest, 'afar');
  owning = home.agent;
  borrowing = afar.agent;
});
beforeEach(async () => {
  lendHonestly(owning);
  lendHonestly(borrowing);
  const pool = owning.setPool({ name: 'shared', shared: true });
  borrowing.setPool(pool);
  vdisk = randomUUID();
  const disk = Disk.fromPartial({ id: vdisk, name: 'd', path: '/p/d', poolId: pool.id, targetDev: 'vda' });
  owner = owning.setDomain({ disks: [disk] });
  borrower = borrowing.setDomain({});
  await known(owner.id);
  await known(borrower.id);
  await until(
    async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).body.nodes_connected?.length === 2,
  );
});
afterEach(() => {
  owning.beforeStart = () => {};
  borrowing.beforeStart = () => {};
});
afterAll(async () => {
  if (running !== rest?.services) await running?.stopNodes();
  await stopAll(rest);
});

const known = (id: string) =>
  until(async () => (await rest.call('GET', `/api/domains/${id}/`)).status === 200);
const attach = (query = '') =>
  rest.call('POST', `/api/domains/${borrower.id}/attach-vdisk/${query}`, { body: { vdisk } });
const detach = (query = '') =>
  rest.call('POST', `/api/domains/${borrower.id}/detach-vdisk/${query}`, { body: { vdisk } });
const keyOf = (answer: { body: { errors: { msg_key: string }[] } }) => answer.body.errors[0]!.msg_key;
const kinds = (agent: FakeAgent) => agent.calls.map(call => call.kind).filter(kind => kind !== 'scan_pool');
const lastCall = (agent: FakeAgent, kind: string) => agent.calls.findLast(call => call.kind === kind)!;
/** Waits for a call that is made from now on, until the agent has made an operation of it. */
function nextCall(
  agent: FakeAgent,
  kind: string,
  meanwhile = () => {},
): () => Promise<FakeAgent['calls'][number]> {
  const before = agent.calls.length;
  const made = () => agent.calls.slice(before).find(call => call.kind === kind);
  return async () => {
    await until(() => {
      meanwhile();
      return agent.operations.has(made()?.request.operationId as string);
    });
    return made()!;
  };
}
const loans = () => owning.domains.get(owner.id)!.loans;
const states = () => owning.domains.get(owner.id)!.savedStates.map(state => state.name);
const attachments = () => borrowing.domains.get(borrower.id)!.attachments;

/** What the controller has heard: the reconciler goes by that. */
const heard = () => rest.services.loanReconciler.loanOf(borrower.id, vdisk) !== undefined;

async function restart(between: () => Promise<void> | void = () => {}): Promise<void> {
  await running.stopNodes();
  await between();
  running = createNodeServices(rest.services, rest, NODE_TIMES);
  Object.assign(rest.services, running);
  await running.startNodes();
}

describe('between two nodes', () => {
  test('a disk is lent, attached, detached and given back, each as one task', async () => {
    const before = [kinds(owning).length, kinds(borrowing).length] as const;
    const answer = await attach('?allow_network_layers=1');
    expect(answer.body).toMatchObject({
      vdisk,
      attached: { target_dev: 'vdb' },
      snapshot: { verbose_name: LENT },
    });
    expect(lastCall(owning, 'lend_disk').request).toMatchObject({
      diskId: vdisk,
      borrowerId: borrower.id,
      borrowerNodeId: borrowing.id,
      allowNetworkLayers: true,
    });
    const { source, allowNetworkLayers } = lastCall(borrowing, 'attach_disk').request;
    expect(allowNetworkLayers).toBe(true);
    expect(source).toMatchObject({ diskId: vdisk, ownerId: owner.id, format: 'qcow2', thinClone: false });
    const originals = (await rest.call('GET', `/api/vdisks/?another_domain=${borrower.id}`)).body;
    expect(originals).toMatchObject({ count: 1, results: [{ id: vdisk, domain: { id: owner.id } }] });
    const tasks = (await rest.call('GET', `/api/tasks/?entity=${borrower.id}`)).body;
    expect(tasks).toMatchObject({ count: 1, results: [{ status: 'SUCCESS', nodes_list: [borrowing.id] }] });

    const end = await detach();
    expect(end.body).toEqual({ vdisk, domain: borrower.id, snapshot: null });
    expect([loans(), states(), attachments()]).toEqual([[], [], []]);
    expect(kinds(owning).slice(before[0])).toEqual(['lend_disk', 'return_disk']);
    expect(kinds(borrowing).slice(before[1])).toEqual(['attach_disk', 'detach_disk']);
    expect((await rest.call('GET', `/api/tasks/?entity=${borrower.id}`)).body.count).toBe(2);
  });

  test("when the node has detached a thin clone's disk, that of its template stays lent", async () => {
    await attach();
    lendHonestly(borrowing, new Set(['detach_disk']));
    const detaching = nextCall(borrowing, 'detach_disk');
    const { body } = await detach('?async=1');
    const before = kinds(owning).length;
    borrowing.succeed((await detaching()).request.operationId, {
      ...{ vdisk: randomUUID(), owner_id: randomUUID(), domain_id: borrower.id, owner_is_here: true },
    });
    await ended(rest, body._task.id);
    expect([loans().length, kinds(owning).slice(before)]).toEqual([1, []]);
  });

  test("a thin clone's disk is lent, and detached, by its template's name, which its node does not know", async () => {
    const [named, own] = [randomUUID(), randomUUID()];
    const { poolId } = owner.disks[0]!;
    const path = '/p/template';
    const template = borrowing.setDomain({ template: true, disks: [Disk.fromPartial({ id: named, path })] });
    const disk = Disk.fromPartial({ id: own, path: '/p/own', backingChain: [path], poolId });
    const clone = owning.setDomain({ parentId: template.id, disks: [disk] });
    await known(template.id);
    await known(clone.id);
    const body = { vdisk: named, thin_clone: clone.id };
    const attached = await rest.call('POST', `/api/domains/${borrower.id}/attach-vdisk/`, { body });
    expect([attached.status, attached.body.vdisk]).toEqual([200, own]);
    await until(
      async () => (await rest.call('GET', `/api/vdisks/?another_domain=${borrower.id}`)).body.count === 1,
    );
    const detached = await rest.call('POST', `/api/domains/${borrower.id}/detach-vdisk/`, { body });
    expect([detached.status, detached.body.vdisk]).toEqual([200, own]);
    expect([owning.domains.get(clone.id)!.loans, attachments()]).toEqual([[], []]);
  });

  test("of a thin clone that was not named as one, that its template's was taken is said across nodes, too", async () => {
    const { poolId } = owner.disks[0]!;
    const base = Disk.fromPartial({ id: randomUUID(), path: '/p/below', poolId });
    const template = owning.setDomain({ template: true, disks: [base] });
    const own = Disk.fromPartial({ id: randomUUID(), path: '/p/above', backingChain: [base.path], poolId });
    const clone = borrowing.setDomain({ parentId: template.id, disks: [own] });
    await known(template.id);
    await known(clone.id);
    const body = { vdisk: own.id };
    const attached = await rest.call('POST', `/api/domains/${borrower.id}/attach-vdisk/`, { body });
    expect(attached.body).toMatchObject({
      vdisk: base.id,
      warnings: [expect.stringContaining(`the disk ${base.id} of its template`)],
    });
    const detached = await rest.call('POST', `/api/domains/${borrower.id}/detach-vdisk/`, { body });
    expect([detached.status, detached.body.vdisk, attachments()]).toEqual([200, base.id, []]);
  });

  test('with async=1 the task is there before anything is lent', async () => {
    lendHonestly(owning, new Set(['lend_disk']));
    const lending = nextCall(owning, 'lend_disk');
    const { status: code, body } = await attach('?async=1');
    expect([code, body.entity, body._task.is_cancellable]).toEqual([202, borrower.id, false]);
    goOn(owning, await lending());
    await ended(rest, body._task.id);
    expect(attachments()).toHaveLength(1);
  });

  test('what the owner refuses is the answer, and nothing was attached', async () => {
    owning.beforeStart = ({ kind }) => {
      if (kind === 'lend_disk')
        throw new VirtkeepError('domain_busy', { domain: owner.name, operation: 'x', kind: 'backup' });
    };
    const before = kinds(borrowing).length;
    expect(keyOf(await attach())).toBe('domain_busy');
    expect(kinds(borrowing)).toHaveLength(before);
  });

  test.each(['refused', 'failed'] as const)('an attaching that is %s gives the disk back', async how => {
    const error = new VirtkeepError('no_free_slot', { domain: borrower.name });
    if (how === 'refused') borrowing.beforeStart = ({ kind }) => failOn(kind === 'attach_disk', error);
    else
      borrowing.whenStarted = ({ kind, request }) => {
        if (kind === 'attach_disk') borrowing.fail(request.operationId, error);
      };
    const refused = await attach();
    expect([refused.status, keyOf(refused)]).toEqual([409, 'no_free_slot']);
    expect([loans(), states()]).toEqual([[], []]);
  });

  test('what is attached already stays so when it is asked for again', async () => {
    await attach();
    expect(keyOf(await attach())).toBe('vdisk_attached_already');
    expect([loans().length, attachments().length, states()]).toEqual([1, 1, [LENT]]);
    await detach();
  });

  test('a pool that the other node cannot use is the reason of a refusal', async () => {
    const pool = owning.setPool({ name: 'own' });
    owning.setDomain({ id: owner.id, disks: [{ ...owner.disks[0]!, poolId: pool.id }] });
    await until(
      async () => (await rest.call('GET', `/api/vdisks/${vdisk}/`)).body.datapool?.verbose_name === 'own',
    );
    const refused = await attach();
    expect([refused.status, keyOf(refused)]).toEqual([409, 'vdisk_unreachable']);
    expect(refused.body.detail).toContain('its VM is on the node home and its data pool own');
    borrowing.setPool({ ...pool, active: false });
    await until(
      async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).body.nodes_connected.length === 2,
    );
    expect(keyOf(await attach())).toBe('vdisk_unreachable');
    expect(loans()).toEqual([]);
  });

  test('an owner whose node is away lends nothing; a detaching does not wait for it', async () => {
    await attach();
    await owning.stop();
    await status(rest, owning.id, 'FAILED');
    const { status: code, body } = await detach('?async=1');
    expect(code).toBe(202);
    const task = await ended(rest, body._task.id);
    expect(task.detail.message).toContain(`The node of ${owner.name} is asked again later`);
    expect(attachments()).toEqual([]);
    expect(keyOf(await attach())).toBe('node_unreachable');
    await owning.start(home.tls);
    await status(rest, owning.id, 'ACTIVE');
    await rest.services.loanReconciler.round();
    expect(loans()).toHaveLength(1);
    await rest.services.loanReconciler.round();
    expect([loans(), states()]).toEqual([[], []]);
  });
});

function failOn(condition: boolean, error: VirtkeepError): void {
  if (condition) throw error;
}

describe('the reconciler', () => {
  const rounds = async () => {
    await rest.services.loanReconciler.round();
    await rest.services.loanReconciler.round();
  };

  test('ends the loan of a borrower that was deleted, or lost its disk', async () => {
    await attach();
    await rounds();
    expect(loans()).toHaveLength(1);
    borrowing.removeDomain(borrower.id);
    await until(async () => (await rest.call('GET', `/api/domains/${borrower.id}/`)).status === 404);
    await rounds();
    expect([loans(), states()]).toEqual([[], []]);
    const events = (await rest.call('GET', `/api/events/?entity=${vdisk}`)).body.results;
    expect(events[0].message).toBe(
      `A disk of ${owner.name} is no longer lent to ${borrower.id}, which does not have it any more`,
    );
  });

  test('guesses nothing while the borrower’s node is away or does not see its hypervisor', async () => {
    await attach();
    borrowing.domains.delete(borrower.id);
    await borrowing.stop();
    await status(rest, borrowing.id, 'FAILED');
    await rounds();
    expect(loans()).toHaveLength(1);
    borrowing.info.libvirtConnected = false;
    await borrowing.start(afar.tls);
    await until(async () => {
      const { results } = (await rest.call('GET', `/api/events/?entity=${borrowing.id}&limit=1`)).body;
      return results[0].message === 'Node afar is connected';
    });
    await rounds();
    expect(loans()).toHaveLength(1);
    await borrowing.stop();
    await status(rest, borrowing.id, 'FAILED');
    borrowing.info.libvirtConnected = true;
    await borrowing.start(afar.tls);
    await status(rest, borrowing.id, 'ACTIVE');
    await rounds();
    expect(loans()).toEqual([]);
  });

  test('leaves a loan alone whose attaching has just begun', async () => {
    lendHonestly(borrowing, new Set(['attach_disk']));
    const { body } = await attach('?async=1');
    await until(() => lastCall(borrowing, 'attach_disk')?.request.operationId === body._task.id);
    await until(heard);
    await rounds();
    expect(loans()).toHaveLength(1);
    goOn(borrowing, lastCall(borrowing, 'attach_disk'));
    await ended(rest, body._task.id);
    await detach();
  });

  test('asks again when the owner is busy', async () => {
    await attach();
    borrowing.setDomain({ id: borrower.id, attachments: [] });
    await until(
      async () => (await rest.call('GET', `/api/vdisks/?another_domain=${borrower.id}`)).body.count === 0,
    );
    owning.beforeStart = ({ kind }) =>
      failOn(
        kind === 'return_disk',
        new VirtkeepError('domain_busy', { domain: 'o', operation: 'x', kind: 'k' }),
      );
    await rounds();
    expect(loans()).toHaveLength(1);
    owning.beforeStart = () => {};
    await rest.services.loanReconciler.round();
    expect(loans()).toEqual([]);
  });
});

describe('a restart of the controller', () => {
  test('while the disk is being lent: the attaching never began, and the disk goes back', async () => {
    lendHonestly(owning, new Set(['lend_disk']));
    const lending = nextCall(owning, 'lend_disk');
    const { body } = await attach('?async=1');
    const call = await lending();
    const attachings = kinds(borrowing).length;
    await restart(() => goOn(owning, call));
    await ended(rest, body._task.id, 'FAILED');
    expect(kinds(borrowing)).toHaveLength(attachings);
    await until(async () => {
      await rest.services.loanReconciler.round();
      return loans().length === 0;
    });
    expect(states()).toEqual([]);
  });

  test('while it is being attached: the task goes on', async () => {
    lendHonestly(borrowing, new Set(['attach_disk']));
    const { body } = await attach('?async=1');
    await until(() => borrowing.operations.has(body._task.id));
    await restart(() => goOn(borrowing, lastCall(borrowing, 'attach_disk')));
    await ended(rest, body._task.id);
    const { response } = (await rest.call('GET', `/api/tasks/${body._task.id}/response/`)).body;
    expect(response).toMatchObject({ vdisk, attached: { target_dev: 'vdb' } });
    expect([loans().length, attachments().length]).toEqual([1, 1]);
    await until(heard);
    await detach();
  });

  test('while it is being detached, or given back: the loan ends', async () => {
    await attach();
    lendHonestly(borrowing, new Set(['detach_disk']));
    lendHonestly(owning, new Set(['return_disk']));
    // the owner's node may come back later than the end of the detaching is heard of; then the reconciler gives the disk back
    const returning = nextCall(owning, 'return_disk', () => void rest.services.loanReconciler.round());
    const { body } = await detach('?async=1');
    await until(() => borrowing.operations.has(body._task.id));
    await restart(() => goOn(borrowing, lastCall(borrowing, 'detach_disk')));
    const call = await returning();
    await restart(() => goOn(owning, call));
    await ended(rest, body._task.id);
    expect([loans(), states(), attachments()]).toEqual([[], [], []]);
  });
});

test('a loan to a VM of a node that was removed is ended by its user', async () => {
  const gone = randomUUID();
  owning.setDomain({
    id: owner.id,
    loans: [{ diskId: vdisk, borrowerId: gone, borrowerNodeId: randomUUID(), mark: 'a' }],
  });
  await until(() => rest.services.loanReconciler.loanOf(gone, vdisk) !== undefined);
  await rest.services.loanReconciler.round();
  await rest.services.loanReconciler.round();
  expect(loans()).toHaveLength(1);
  const path = `/api/domains/${gone}/detach-vdisk/`;
  expect(keyOf(await rest.call('POST', path, { body: { vdisk: randomUUID() } }))).toBe('domain_not_found');
  const { body } = await rest.call('POST', path, { body: { vdisk } });
  expect(body).toEqual({ vdisk, domain: gone, snapshot: null });
  expect(loans()).toEqual([]);
});
