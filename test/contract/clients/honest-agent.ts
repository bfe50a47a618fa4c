/** A scripted agent that does at once what it is asked for, as far as its inventory shows: for clients that run the main job. */
import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { Disk, type Domain, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { makeRestApp, type RestApp } from '../rest/app.ts';
import { lendHonestly } from '../rest/fake-lending.ts';
import { enrolled, until } from '../rest/nodes-world.ts';
import type { FakeAgent, StartedCall } from '../rest/scripted-node.ts';

/** What a client works with. */
export interface Job {
  domain: string;
  borrower: string;
  vdisk: string;
  datapool: string;
}

export interface ClientWorld {
  rest: RestApp;
  url: string;
  /** Two VMs of one's own. */
  job: () => Promise<Job>;
}

/** A server on a socket, with one such node behind it. */
export async function clientWorld(): Promise<ClientWorld> {
  const rest = await makeRestApp();
  const { agent } = await enrolled(rest, 'n1');
  workHonestly(agent);
  await rest.app.listen({ host: '127.0.0.1', port: 0 });
  const url = `http://127.0.0.1:${(rest.app.server.address() as AddressInfo).port}`;
  return { rest, url, job: () => makeJob(rest, agent) };
}

async function makeJob(rest: RestApp, agent: FakeAgent): Promise<Job> {
  const pool = agent.setPool({ shared: true });
  const id = randomUUID();
  const disk = Disk.fromPartial({ id, name: 'd', poolId: pool.id, targetDev: 'vda', targetBus: 'virtio' });
  const domain = agent.setDomain({ disks: [disk] });
  const borrower = agent.setDomain({});
  await until(async () => (await rest.call('GET', `/api/domains/${borrower.id}/`)).status === 200);
  return { domain: domain.id, borrower: borrower.id, vdisk: id, datapool: pool.id };
}

function workHonestly(agent: FakeAgent): void {
  lendHonestly(agent);
  const lends = agent.whenStarted;
  agent.whenStarted = call => {
    if (call.kind === 'backup') backUp(agent, call);
    else if (call.kind === 'restore') restore(agent, call);
    else if (call.kind === 'rename_domain') change(agent, call, { name: String(call.request.name) });
    else if (call.kind === 'power') change(agent, call, { powerState: PowerState.RUNNING });
    else lends(call);
  };
}

function change(agent: FakeAgent, { request }: StartedCall, to: Partial<Domain>): void {
  agent.setDomain({ id: String(request.domainId), ...to });
  agent.succeed(request.operationId);
}

/** Makes the file, or one state more in the file that is extended. */
function backUp(agent: FakeAgent, { request }: StartedCall): void {
  const { fileId, poolId, domainId, extendFileId } = request as Record<string, string>;
  const id = extendFileId || fileId!;
  const domainName = agent.domains.get(domainId!)!.name;
  const { states: before = [] } = agent.files.get(id) ?? {};
  const number = before.length + 1;
  const state = agent.addState(domainId!, { name: `backup_${number}_${id}`, backupId: id });
  const made = {
    ...{ number, name: state.name, created: new Date(), memory: false, consistency: 'quiesced' },
    excludedDisks: [],
  };
  const file = agent.setFile({
    id,
    poolId: poolId || agent.files.get(id)!.poolId,
    domainId: domainId!,
    domainName,
    canBeIncremental: true,
    requiredStates: [state.name],
    states: [...before, made],
  });
  agent.succeed(request.operationId, { file });
}

function restore(agent: FakeAgent, { request }: StartedCall): void {
  const { id, name } = agent.setDomain({ id: String(request.domainId), powerState: PowerState.OFF });
  agent.succeed(request.operationId, { domain_id: id, name, disks: [], warnings: [], pool_changed: false });
}
