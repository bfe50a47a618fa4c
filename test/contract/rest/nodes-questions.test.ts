/** What a node asks about the others through the controller: who is asked, and what an answer is made of. */
import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Thing } from '../../../agent/src/other-nodes.ts';
import { makeRestApp, type RestApp, type RestAppOptions } from './app.ts';
import { type Enrolled, enrolled, status, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

const never = new AbortController().signal;
const UNUSED = { kind: 'unused' };

let rest: RestApp;
let nodes: Enrolled[];
let asker: FakeAgent;
let other: FakeAgent;
let third: FakeAgent;

async function world(options: RestAppOptions = {}): Promise<void> {
  rest = await makeRestApp(undefined, undefined, options);
  nodes = [await enrolled(rest, 'n1'), await enrolled(rest, 'n2'), await enrolled(rest, 'n3')];
  [asker, other, third] = nodes.map(({ agent }) => agent) as [FakeAgent, FakeAgent, FakeAgent];
}

beforeEach(() => world());
afterEach(() => stopAll(rest));

const ask = (...things: Thing[]) => asker.questions!.whoUses(things, never);
const domain = (id: string): Thing => ({ kind: 'domain', id });

/** A pool of the asking node and of others. */
async function pool(...others: FakeAgent[]): Promise<Thing> {
  const id = randomUUID();
  for (const agent of [asker, ...others]) agent.setPool({ id });
  const views = async () => (await rest.call('GET', `/api/data-pools/${id}/`)).body.nodes_connected?.length;
  await until(async () => (await views()) === others.length + 1);
  return { kind: 'file', poolId: id, path: 'a.qcow2' };
}

test('all other nodes are asked for a VM and a device, those with its pool for a file', async () => {
  const file = await pool(other);
  const device: Thing = { kind: 'device', key: 'wwn:1' };
  expect(await ask(domain('d'), device, file)).toEqual([UNUSED, UNUSED, UNUSED]);
  const kinds = (agent: FakeAgent) => agent.askedFor.map(({ thing }) => thing?.$case);
  expect([kinds(asker), kinds(other), kinds(third)]).toEqual([
    [],
    ['domain', 'device', 'file'],
    ['domain', 'device'],
  ]);
});

test('a use is told with its node, one by a running VM before others', async () => {
  const use = { nodeName: '', domainId: 'd', domainName: 'vm', active: false, lastRanHere: false };
  other.useOf = () => use;
  third.useOf = () => ({ ...use, active: true });
  expect(await ask(domain('d'))).toEqual([{ kind: 'used', by: { ...use, active: true, nodeName: 'n3' } }]);
});

test('a node that cannot tell whether it uses a device leaves the answer open, unless another uses it', async () => {
  const device: Thing = { kind: 'device', key: 'wwn:1' };
  other.unsure = 'its VM vm names /dev/sdb, which is away';
  const reason = 'node n2 cannot tell: its VM vm names /dev/sdb, which is away';
  expect(await ask(device)).toEqual([{ kind: 'unknown', reason }]);
  const use = { nodeName: '', domainId: 'd', domainName: 'vm', active: false, lastRanHere: false };
  third.useOf = () => use;
  expect(await ask(device)).toEqual([{ kind: 'used', by: { ...use, nodeName: 'n3' } }]);
});

test('of a VM that runs nowhere the node is told whether it ran there last', async () => {
  const id = randomUUID();
  other.useOf = ({ thing }) => ({
    ...{ nodeName: '', domainName: 'vm', active: false, lastRanHere: false },
    domainId: String(thing?.value),
  });
  asker.setDomain({ id, powerState: PowerState.RUNNING });
  asker.setDomain({ id, powerState: PowerState.OFF });
  await until(async () => (await rest.call('GET', `/api/domains/${id}/`)).body.user_power_state === 1);
  expect(await ask(domain(id))).toMatchObject([{ kind: 'used', by: { nodeName: 'n2', lastRanHere: true } }]);
  const never = randomUUID();
  expect(await ask(domain(never))).toMatchObject([{ kind: 'used', by: { lastRanHere: false } }]);
});

test('a node that is away leaves open what it could use, and nothing else', async () => {
  const [theirs, ours] = [await pool(other), await pool(third)];
  await other.stop();
  await status(rest, other.id, 'FAILED');
  const reason = expect.stringContaining('n2');
  expect(await ask(theirs, ours, domain('d'))).toEqual([
    { kind: 'unknown', reason },
    UNUSED,
    { kind: 'unknown', reason },
  ]);
  third.useOf = () => ({ nodeName: '', domainId: 'd', domainName: 'vm', active: true, lastRanHere: false });
  expect(await ask(domain('d'))).toMatchObject([{ kind: 'used', by: { nodeName: 'n3' } }]);
});

test('a node that was there a moment ago is waited for: it may have what the asking node had', async () => {
  await stopAll(rest);
  await world({ returnMs: 600_000 });
  other.useOf = () => ({ nodeName: '', domainId: 'd', domainName: 'vm', active: true, lastRanHere: false });
  await other.stop();
  await status(rest, other.id, 'FAILED');
  const asked = ask(domain('d'));
  await until(async () => third.askedFor.length > 0);
  await other.start(nodes[1]!.tls);
  expect(await asked).toMatchObject([{ kind: 'used', by: { nodeName: 'n2', active: true } }]);
});

test('a node that fails, or is of an earlier version, leaves the answer open', async () => {
  other.useOf = () => {
    throw new VirtkeepError('libvirt_unreachable', { uri: 'qemu:///system' });
  };
  expect(await ask(domain('d'))).toEqual([
    { kind: 'unknown', reason: expect.stringContaining('qemu:///system') },
  ]);
  other.useOf = () => undefined;
  other.asksNothing = true;
  expect(await ask(domain('d'))).toEqual([{ kind: 'unknown', reason: expect.stringContaining('n2') }]);
});

test('a pool that the controller has not heard of leaves the answer open', async () => {
  expect(await ask({ kind: 'file', poolId: randomUUID(), path: 'a' })).toMatchObject([{ kind: 'unknown' }]);
});
