/** The lab of `make lab-up` and the demo: nodes with agents, a controller and a guest, below one directory. */
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type LabAgent, makeAgent } from './agent.ts';
import { ADMIN, type LabController, makeController } from './controller.ts';
import { makeDataDisk } from './disks.ts';
import { defineDebianGuest, defineTinyGuest, Guest } from './guest.ts';
import { adoptNode, definePool, type LabNode, type PoolSpec, startNode } from './node.ts';
import type { Rest } from './rest.ts';
import { waitFor } from './run.ts';

export interface LabOptions {
  dir: string;
  /** Of the controller; the agents take the following ones. */
  port: number;
  nodes: 1 | 2;
  guest: 'debian' | 'tiny';
  /** Told what is being done. */
  say: (text: string) => void;
}

export interface Lab {
  options: LabOptions;
  nodes: LabNode[];
  agents: LabAgent[];
  controller: LabController;
  rest: Rest;
  guest: Guest;
  /** What `.lab/env` exports. */
  env: Record<string, string>;
}

export const GUEST_NAME = 'lab-guest';
const PASSWORD = 'virtkeep-lab';
const SHARED_POOL_UUID = '5eed5eed-0000-4000-8000-000000000001';
/** Half a minute for Debian under emulation; much more on a busy machine. */
const BOOT_TIMEOUT_MS = 600_000;
const MAX_NODES = 2;
/** A unix socket's path has at most 107 bytes; `/n1/run/libvirt-sock` is the longest below the lab's directory. */
const MAX_DIR_BYTES = 85;

/** Options from the environment variables that the Makefile hands down. @throws Error naming a bad one */
export function labOptions(env: NodeJS.ProcessEnv, say: (text: string) => void): LabOptions {
  const dir = resolve(env.LAB_DIR ?? '.lab');
  const port = Number(env.PORT ?? 8443);
  const nodes = Number(env.NODES ?? 1);
  const guest = env.GUEST ?? 'debian';
  if (Buffer.byteLength(dir) > MAX_DIR_BYTES) throw new Error(`LAB_DIR is too long for unix sockets: ${dir}`);
  if (!Number.isInteger(port) || port < 1 || port > 65_535 - MAX_NODES)
    throw new Error(`PORT=${env.PORT} cannot be used`);
  if (nodes !== 1 && nodes !== 2) throw new Error(`NODES=${env.NODES}: one or two`);
  if (guest !== 'debian' && guest !== 'tiny') throw new Error(`GUEST=${guest}: debian or tiny`);
  return { dir, port, nodes, guest, say };
}

/** Brings up whatever of the lab is not up. */
export async function labUp(options: LabOptions): Promise<Lab> {
  mkdirSync(options.dir, { recursive: true, mode: 0o755 });
  const nodes: LabNode[] = [];
  for (let index = 1; index <= options.nodes; index += 1) nodes.push(await ensureNode(options, index));
  const controller = await makeController({
    dir: join(options.dir, 'controller'),
    port: options.port,
    password: PASSWORD,
  });
  if (!controller.daemon.adopt()) {
    options.say(`starting the controller at ${controller.url}`);
    await controller.daemon.start();
  }
  const rest = await controller.admin();
  const agents: LabAgent[] = [];
  for (const [index, node] of nodes.entries())
    agents.push(await ensureAgent(options, { node, index }, controller, rest));
  const guest = await ensureGuest(options, nodes[0]!);
  const uuid = await guest.uuid();
  const known = async () => (await rest.send('GET', `/api/domains/${uuid}/`)).status === 200;
  await waitFor('the controller to know the guest', known, 120_000);
  const env = await writeEnv(options, { nodes, agents, controller, rest, uuid });
  return { options, nodes, agents, controller, rest, guest, env };
}

/** Ends everything of the lab and removes its directory. @returns false when there was no lab */
export async function labDown(dir: string): Promise<boolean> {
  if (!existsSync(dir)) return false;
  const controllerDir = join(dir, 'controller');
  if (existsSync(controllerDir)) {
    const { daemon } = await makeController({ dir: controllerDir, port: 1 });
    if (daemon.adopt()) await daemon.stop(10_000).catch(() => daemon.kill());
  }
  for (let index = 1; index <= MAX_NODES; index += 1) await adoptNode(join(dir, `n${index}`))?.stop();
  rmSync(dir, { recursive: true, force: true });
  return true;
}

async function ensureNode({ dir, nodes, say }: LabOptions, index: number): Promise<LabNode> {
  const nodeDir = join(dir, `n${index}`);
  const shared = { name: 'shared', uuid: SHARED_POOL_UUID, path: join(dir, 'shared') };
  const running = adoptNode(nodeDir, true);
  if (running) {
    if (running.libvirtdPid === undefined) await running.startLibvirtd();
    // a lab of one node becomes one of two
    if (nodes > 1 && !running.pools.some(({ uuid }) => uuid === shared.uuid))
      await definePool(running, shared);
    return running;
  }
  say(`starting node${index} (a private libvirtd)`);
  const pools: PoolSpec[] = [{ name: 'fast' }, { name: 'bulk' }];
  if (nodes > 1) pools.push(shared);
  return startNode({ name: `node${index}`, dir: nodeDir, pools, keepDir: true });
}

async function ensureAgent(
  { dir, port, say }: LabOptions,
  { node, index }: { node: LabNode; index: number },
  controller: LabController,
  rest: Rest,
): Promise<LabAgent> {
  const agent = await makeAgent({ node, dir: join(dir, `agent-${node.name}`), port: port + 1 + index });
  if (!agent.daemon.adopt()) {
    const known = (await rest.send('GET', `/api/nodes/${agent.nodeId}/`)).status === 200;
    if (!known) {
      say(`enrolling ${node.name}`);
      await agent.enrol(controller.url, rest);
    }
    say(`starting the agent of ${node.name}`);
    await agent.daemon.start();
  }
  const ready = async () => {
    type NodeRecord = { status?: string; base_datapool?: string | null };
    const { body } = await rest.send<NodeRecord>('GET', `/api/nodes/${agent.nodeId}/`);
    return body.status === 'ACTIVE' && Boolean(body.base_datapool);
  };
  await waitFor(`the controller's knowledge of ${node.name}`, ready, 120_000);
  return agent;
}

async function ensureGuest(options: LabOptions, node: LabNode): Promise<Guest> {
  const defined = (await node.virsh('list', '--all', '--name')).split('\n').map(line => line.trim());
  const guest = defined.includes(GUEST_NAME) ? new Guest(node, GUEST_NAME) : await makeGuest(options, node);
  if ((await guest.state()) !== 'running') {
    options.say(`starting the guest ${GUEST_NAME} (emulated: half a minute for Debian)`);
    await guest.start();
  }
  return guest.waitForAgent(BOOT_TIMEOUT_MS);
}

async function makeGuest({ guest, say }: LabOptions, node: LabNode): Promise<Guest> {
  const path = join(node.pool(0).path, `${GUEST_NAME}-data.qcow2`);
  const disks = [{ path: await makeDataDisk(path, { sizeMiB: 256, label: 'data' }) }];
  if (guest === 'tiny') return defineTinyGuest(node, { name: GUEST_NAME, disks });
  say('preparing the Debian guest (built once, then cached)');
  return defineDebianGuest(node, { name: GUEST_NAME, disks });
}

interface EnvParts {
  nodes: LabNode[];
  agents: LabAgent[];
  controller: LabController;
  rest: Rest;
  uuid: string;
}

/** Writes `<lab>/env`. A token issued before is kept as long as it is accepted. */
async function writeEnv({ dir }: LabOptions, parts: EnvParts): Promise<Record<string, string>> {
  const { nodes, agents, controller, rest, uuid } = parts;
  const path = join(dir, 'env');
  const env = {
    VIRTKEEP_URL: controller.url,
    VIRTKEEP_TOKEN: await labToken(path, controller, rest),
    VIRTKEEP_USER: ADMIN,
    VIRTKEEP_PASSWORD: controller.password,
    VIRTKEEP_CA: controller.caFile,
    VIRTKEEP_NODE: agents[0]!.nodeId,
    VIRTKEEP_POOL: nodes[0]!.pool(0).uuid,
    VIRTKEEP_POOL2: nodes[0]!.pool(1).uuid,
    VIRTKEEP_VM: uuid,
    LIBVIRT_URI: nodes[0]!.uri,
  };
  const lines = Object.entries(env).map(([name, value]) => `export ${name}='${value}'\n`);
  writeFileSync(path, lines.join(''), { mode: 0o600 });
  return env;
}

async function labToken(path: string, controller: LabController, rest: Rest): Promise<string> {
  const before = existsSync(path)
    ? readFileSync(path, 'utf8').match(/VIRTKEEP_TOKEN='([^']+)'/)?.[1]
    : undefined;
  if (before) {
    const client = controller.anonymous();
    client.token = before;
    if ((await client.send('GET', '/api/tokens/')).status === 200) return before;
  }
  const { token } = await rest.ok<{ token: string }>('POST', '/api/tokens/', {
    name: `lab ${new Date().toISOString()}`,
    password: controller.password,
  });
  return token;
}
