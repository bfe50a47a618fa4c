/** A VM that two nodes know, as after a migration that left its definition behind: which one is the VM, and what is refused. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { Disk, type Domain, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { newId } from '@virtkeep/shared/ids';
import { createNodeServices } from '../../../controller/src/services/node-services.ts';
import { makeRestApp, NODE_TIMES, type RestApp } from './app.ts';
import { enrolled, status, stopAll, until } from './nodes-world.ts';
import type { FakeAgent } from './scripted-node.ts';

const { OFF, RUNNING } = PowerState;

let rest: RestApp;
let one: FakeAgent;
let two: FakeAgent;

beforeEach(async () => {
  rest = await makeRestApp();
  one = (await enrolled(rest, 'n1')).agent;
  two = (await enrolled(rest, 'n2')).agent;
});
afterEach(() => stopAll(rest));

const id = newId();
const tell = (agent: FakeAgent, powerState: PowerState, more: Partial<Domain> = {}) =>
  agent.setDomain({ id, name: 'vm', powerState, ...more });
const record = async () => (await rest.call('GET', `/api/domains/${id}/`)).body;
const nodeOf = async () => (await record()).node?.verbose_name;
const post = (path: string, body: object = {}) => rest.call('POST', `/api/domains/${path}?async=1`, { body });
const refusal = async (path: string, body?: object) => {
  const { status: code, body: answer } = await post(path, body);
  return [code, answer.errors?.[0]?.msg_key, answer.errors?.[0]?.detail ?? answer.detail];
};
const calls = (agent: FakeAgent) => agent.calls.map(({ kind }) => kind);

/** Everything that a node has told so far was taken over. */
async function heard(agent: FakeAgent): Promise<void> {
  const probe = agent.setDomain({});
  await until(async () => (await rest.call('GET', `/api/domains/${probe.id}/`)).status === 200);
}

test('the running one is the VM, whoever spoke last; what is asked of it goes to its node', async () => {
  tell(one, RUNNING);
  await heard(one);
  tell(two, OFF, { description: 'stale' });
  await heard(two);
  expect(await record()).toMatchObject({
    description: '',
    user_power_state: 3,
    node: { verbose_name: 'n1' },
  });
  await post(`${id}/reboot/`);
  expect([calls(one), calls(two)]).toEqual([['power'], []]);

  two.removeDomain(id);
  await heard(two);
  expect(await nodeOf()).toBe('n1');
});

test('a migration moves it, and the copy that stays behind is not taken for it', async () => {
  tell(one, RUNNING);
  await heard(one);
  tell(two, RUNNING);
  tell(one, OFF);
  await until(async () => (await nodeOf()) === 'n2');
  tell(one, OFF, { description: 'edited' });
  await heard(one);
  expect(await nodeOf()).toBe('n2');
});

test('when none runs, it is the one that ran last, also after a restart of the controller', async () => {
  tell(one, RUNNING);
  await heard(one);
  tell(two, OFF);
  await heard(two);
  tell(one, OFF);
  await heard(one);
  tell(two, OFF, { description: 'told later' });
  await heard(two);
  expect(await nodeOf()).toBe('n1');

  await rest.services.stopNodes();
  Object.assign(rest.services, createNodeServices(rest.services, rest, NODE_TIMES));
  await rest.services.startNodes();
  for (const agent of [two, one]) await status(rest, agent.id, 'ACTIVE');
  expect(await nodeOf()).toBe('n1');
  await post(`${id}/start/`);
  expect([calls(one), calls(two)]).toEqual([['power'], []]);
});

test('when nobody knows which one ran last, nothing is done and both nodes are named', async () => {
  tell(one, OFF);
  await heard(one);
  tell(two, OFF);
  await heard(two);
  const nodes = expect.stringMatching(/n1.*n2/);
  const pool = one.setPool({});
  await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
  for (const [path, body] of [
    [`${id}/start/`, {}],
    [`${id}/remove/`, { full: true }],
    ['backup/', { domain: id, datapool: pool.id }],
  ] as const)
    expect(await refusal(path, body)).toEqual([409, 'domain_on_several_nodes', nodes]);
  expect((await record()).permissions).toEqual([]);
  two.removeDomain(id);
  await heard(two);
  expect((await post(`${id}/start/`)).status).toBe(202);
  expect(calls(one)).toEqual(['power']);
});

/** What every action on a VM is sent; one that is not here fails the test below until its rule is decided. */
const ACTIONS: Record<string, object | 'allowed'> = {
  'start/': {},
  'shutdown/': {},
  'reboot/': {},
  'reset/': {},
  'suspend/': {},
  'resume/': {},
  '(put)': { description: 'd' },
  'template/(put)': { template: true },
  'remove/': { full: true },
  'snapshots/': { verbose_name: 's' },
  'snapshots/{snapshot}/remove/': {},
  'snapshots/{snapshot}/revert/': {},
  'clone/': { verbose_name: 'c' },
  'change-template/': {},
  'guest-command/': { emu_cmd: 'guest-ping', fargs: {} },
  'attach-vdisk/': { vdisk: newId() },
  // a loan may end wherever its VM is
  'detach-vdisk/': 'allowed',
  'set-hostname/': {},
  'add-to-ad/': { domainname: 'ad.example.com', login: 'a', password: 'b' },
  'rm-from-ad/': { login: 'a', password: 'b' },
  'ssh-keys/': { ssh_user: 'root', ssh_key: 'ssh-ed25519 AAAA a' },
  'ssh-keys/remove/': { ssh_user: 'root', ssh_key: 'ssh-ed25519 AAAA a' },
  'sysprep/': {},
  'prepare/': {},
  'attach-guest-tools-iso/': {},
  'detach-guest-tools-iso/': {},
};

test('no action of any kind is done with a VM of which nobody knows where it is', async () => {
  tell(one, OFF);
  await heard(one);
  tell(two, OFF);
  await heard(two);
  const { paths } = rest.app.swagger() as { paths: Record<string, Record<string, unknown>> };
  const start = '/api/domains/{id}/';
  const actions = Object.entries(paths)
    .filter(([path]) => path.startsWith(start))
    .flatMap(([path, methods]) =>
      Object.keys(methods)
        .filter(method => method !== 'get' && method !== 'head')
        .map(method => `${path.slice(start.length)}${method === 'post' ? '' : `(${method})`}`),
    );
  expect(actions.sort()).toEqual(Object.keys(ACTIONS).sort());
  const answers: [string, string][] = [];
  for (const [action, body] of Object.entries(ACTIONS)) {
    if (body === 'allowed') continue;
    const [, path = '', method = 'post'] = /^([^(]*)(?:\((.*)\))?$/.exec(action) ?? [];
    const url = `/api/domains/${id}/${path.replace('{snapshot}', newId())}`;
    const answer = await rest.call(method.toUpperCase() as 'POST', url, { body });
    answers.push([action, answer.body.errors?.[0]?.msg_key]);
  }
  expect(answers.filter(([, key]) => key !== 'domain_on_several_nodes')).toEqual([]);
  expect([calls(one), calls(two)]).toEqual([[], []]);
});

test('disks of such a VM are not lent, but for a template, whose disks never change', async () => {
  const disks = [Disk.fromPartial({ id: newId(), name: 'a', path: '/a.qcow2', targetDev: 'vda' })];
  const borrower = one.setDomain({ powerState: RUNNING });
  tell(one, OFF, { disks });
  await heard(one);
  tell(two, OFF, { disks });
  await heard(two);
  const attach = () => refusal(`${borrower.id}/attach-vdisk/`, { vdisk: disks[0]!.id });
  expect(await attach()).toEqual([409, 'domain_on_several_nodes', expect.any(String)]);
  for (const agent of [one, two]) {
    tell(agent, OFF, { disks, template: true });
    await heard(agent);
  }
  expect((await attach())[0]).toBe(202);
});

test('what a node that is away told last does not keep its VM from running elsewhere', async () => {
  tell(one, RUNNING);
  await heard(one);
  await one.stop();
  await status(rest, one.id, 'FAILED');
  tell(two, OFF);
  await heard(two);
  expect(await nodeOf()).toBe('n1');
  tell(two, RUNNING);
  await until(async () => (await nodeOf()) === 'n2');
  await post(`${id}/reboot/`);
  expect(calls(two)).toEqual(['power']);
});

test('a node that is lost while its VM is started elsewhere leaves no conflict behind', async () => {
  tell(one, RUNNING);
  await heard(one);
  tell(two, RUNNING);
  await heard(two);
  await one.stop();
  await until(async () => (await nodeOf()) === 'n2');
  expect((await post(`${id}/reboot/`)).status).toBe(202);
});

test('one that runs twice is only switched off', async () => {
  tell(one, RUNNING);
  tell(two, RUNNING);
  await heard(one);
  await heard(two);
  const nodes = expect.stringMatching(/n1.*n2/);
  for (const path of [`${id}/reboot/`, `${id}/suspend/`, `${id}/remove/`])
    expect(await refusal(path)).toEqual([409, 'domain_runs_twice', nodes]);
  expect((await record()).permissions).toEqual(['shutdown']);
  expect((await post(`${id}/shutdown/`, { force: true })).status).toBe(202);
});
