/** Several controllers on one PostgreSQL server, a TCP load balancer before them, and simulated agents behind. */
import { type ChildProcess, fork } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type LabController, makeController } from '../lab/controller.ts';
import { freePort } from '../lab/free-port.ts';
import { makeWorldDir, ROOT } from '../lab/paths.ts';
import { TestPostgres } from '../lab/postgres.ts';
import { signalProcess } from '../lab/processes.ts';
import { Rest } from '../lab/rest.ts';
import { waitFor } from '../lab/run.ts';
import type { FromAgents, ToAgents } from '../scale/agents.child.ts';
import { Balancer } from './balancer.ts';
import type { ControllerNetwork, Cut } from './network.ts';
import { RealNodes } from './real-nodes.ts';

/** A controller that is silent for so long has lost its turn, unless told otherwise, s. */
export const LEASE_S = 5;
const PASSWORD = 'lab-Passw0rd';
const HERE = '127.0.0.1';
const CLIENT_PORT = 8443;
const PEER_PORT = 8444;
/** Of all agents (`test/scale/agents.child.ts`). */
const AGENT_PORTS: [number, number] = [20_000, 29_999];
const WAIT_MS = 240_000;
/** Of the simulated agents; nobody else listens there: each process that runs tests has one of its own (its pid has at most 22 bits). */
const AGENTS_HOST = [127, 64 + (process.pid >> 16), (process.pid >> 8) & 255, process.pid & 255].join('.');

export interface ClusterSize {
  controllers: number;
  /** Simulated ones. */
  nodes: number;
  vms: number;
  /** Else as short as `LEASE_S`, in which a renewal must be on a disk that other tests keep busy, and the server may be killed. */
  leaseS?: number;
  /** Also two that are none. */
  hasRealNodes?: boolean;
  /** In which each of them is apart, and the database has a follower; absent: all on this machine. */
  network?: ControllerNetwork;
}

/** Of an operation that an agent was asked to begin. */
export interface StartedOperation {
  id: string;
  kind: string;
  domain: string;
}

export class ClusterWorld {
  readonly dir = makeWorldDir();
  readonly controllers: LabController[] = [];
  /** The one that takes changes. */
  postgres!: TestPostgres;
  #network: ControllerNetwork | undefined;
  #follower: TestPostgres | undefined;
  #databasePort = 0;
  #leaseS = LEASE_S;
  #peerPort = 0;
  /** Logged in, by the load balancer. */
  admin!: Rest;
  readonly #balancers: Balancer[] = [];
  #agents: ChildProcess | undefined;
  #realNodes: RealNodes | undefined;
  /** Of those that are started again when they end. */
  #isKept = false;

  async start({
    controllers,
    nodes,
    vms,
    network,
    leaseS,
    hasRealNodes = false,
  }: ClusterSize): Promise<void> {
    this.#network = network;
    this.#leaseS = leaseS ?? LEASE_S;
    const isDurable = leaseS === undefined;
    this.postgres = await TestPostgres.start({ isDurable, isFollowed: true, password: PASSWORD });
    await this.postgres.ask('create database virtkeep');
    if (network) await this.#shareDatabase(network);
    for (let number = 1; number <= controllers; number += 1) this.controllers.push(await this.#make(number));
    // the first one makes the key file, which the others need
    await this.controllers[0]!.daemon.start();
    await Promise.all(this.controllers.slice(1).map(({ daemon }) => daemon.start()));
    await this.#balance();
    if (nodes > 0) await this.#enrol({ nodes, vms });
    if (!hasRealNodes) return;
    this.#realNodes = new RealNodes();
    await this.#realNodes.start(this.admin, network?.host ?? HERE);
  }

  /** By one address, whichever server takes changes, as behind any proxy of such servers. */
  async #shareDatabase(network: ControllerNetwork): Promise<void> {
    this.#follower = await this.postgres.follow();
    const servers = [this.postgres, this.#follower];
    const balancer = new Balancer(
      servers.map(server => ({ host: '127.0.0.1', port: server.port, isWell: () => server.isPrimary() })),
    );
    this.#databasePort = await balancer.listen(network.host);
    this.#balancers.push(balancer);
  }

  /** The follower takes the place of the server that it follows, which is lost. */
  async failOver(): Promise<boolean> {
    if (!this.#follower) return false;
    const former = this.postgres;
    await former.end('immediate');
    await this.#follower.ask('select pg_promote()');
    this.postgres = this.#follower;
    this.#follower = undefined;
    await former.remove();
    return true;
  }

  async #make(number: number): Promise<LabController> {
    const network = this.#network;
    const host = network?.address(number) ?? HERE;
    this.#peerPort = network ? PEER_PORT : await freePort();
    const url = network
      ? `postgres://virtkeep:${PASSWORD}@${network.host}:${this.#databasePort}/virtkeep`
      : this.postgres.url('virtkeep');
    return makeController({
      dir: join(this.dir, `c${number}`),
      host,
      // of no agent: a cut from those must not be one from the clients
      ...(network && { port: CLIENT_PORT, inside: network.inside(number) }),
      password: PASSWORD,
      settings: {
        log_level: 'info',
        database: url,
        cluster: {
          key_file: join(this.dir, 'cluster.key'),
          peer: { host, port: this.#peerPort },
          address: host,
          lease_s: this.#leaseS,
        },
        limits: { requests_per_minute: 10_000_000, event_loop_delay_ms: 3_600_000 },
        shutdown_drain_s: 5,
      },
    });
  }

  get ca(): string {
    return readFileSync(this.controllers[0]!.caFile, 'utf8');
  }

  async #balance(): Promise<void> {
    const backends = this.controllers.map(controller => ({
      host: new URL(controller.url).hostname,
      port: Number(new URL(controller.url).port),
      isWell: (signal: AbortSignal) => isWell(controller, signal),
    }));
    const balancer = new Balancer(backends);
    this.#balancers.push(balancer);
    this.admin = new Rest(`https://${HERE}:${await balancer.listen(HERE)}`, this.ca);
    await this.admin.login('admin', PASSWORD);
  }

  async #enrol({ nodes, vms }: Pick<ClusterSize, 'nodes' | 'vms'>): Promise<void> {
    const tokens: string[] = [];
    for (let node = 0; node < nodes; node += 1)
      tokens.push(
        (await this.admin.ok<{ token: string }>('POST', '/api/nodes/', { verbose_name: `n${node}` })).token,
      );
    this.#agents = fork(join(ROOT, 'test/scale/agents.child.ts'), { execArgv: ['--no-warnings'] });
    await this.tellAgents({
      do: 'enrol',
      first: 0,
      last: nodes,
      size: { nodes, vms },
      url: this.admin.url,
      ca: this.ca,
      tokens,
      host: this.#network?.host ?? AGENTS_HOST,
    });
    await this.tellAgents({ do: 'listen' });
    const isComplete = async () => {
      const all = await this.admin.list<{ status: string }>('/api/nodes/');
      return all.filter(({ status }) => status === 'ACTIVE').length === nodes;
    };
    await waitFor('all nodes to be connected', isComplete, WAIT_MS);
  }

  tellAgents(order: ToAgents): Promise<FromAgents> {
    const child = this.#agents!;
    return new Promise((resolve, reject) => {
      const hear = (message: FromAgents) => {
        if (message.told === 'changed') return;
        child.off('message', hear);
        if (message.told === 'failed') reject(new Error(message.reason));
        else resolve(message);
      };
      child.on('message', hear);
      child.send(order);
    });
  }

  /** What the agents were asked to begin; the real ones end. */
  async startedOperations(): Promise<StartedOperation[]> {
    // the end of the order follows what it told
    const told = await this.tellAgents({ do: 'operations' });
    if (told.told !== 'operations') throw new Error(`the agents answered ${told.told}`);
    const simulated = told.operations.map(([id, kind, domain]) => ({ id, kind, domain }));
    return [...simulated, ...((await this.#realNodes?.endAgents()) ?? [])];
  }

  /**
   * What is wrong on the real nodes when all backups have ended.
   * @param written of which VM each backup was that succeeded
   */
  async faultsOfRealNodes(written: readonly string[]): Promise<string[]> {
    if (!this.#realNodes) return [];
    const own = new Set(await this.#realNodes.domains());
    return this.#realNodes.faults(written.filter(domain => own.has(domain)).length);
  }

  /** Which of them acts, by what it has logged; none of these. */
  acting(but: readonly LabController[] = []): LabController | undefined {
    return this.controllers.find(
      one => !but.includes(one) && one.daemon.pid !== undefined && isActing(one.daemon.log()),
    );
  }

  /** Cuts one of them off from something, until what is returned. */
  async cut(controller: LabController, what: Cut): Promise<() => Promise<void>> {
    const network = this.#network;
    if (!network) return async () => {};
    const number = this.controllers.indexOf(controller) + 1;
    await network.cut(number, what, {
      database: this.#databasePort,
      controllers: this.#peerPort,
      nodes: AGENT_PORTS,
    });
    return () => network.heal(number);
  }

  get isApart(): boolean {
    return this.#network !== undefined;
  }

  /** Starts each of them again that ends, as systemd does, until the end of the world. */
  keepRunning(): void {
    this.#isKept = true;
    for (const controller of this.controllers) void this.#keep(controller);
  }

  async #keep({ daemon }: LabController): Promise<void> {
    while (this.#isKept) {
      await daemon.ended;
      if (this.#isKept) await daemon.spawn();
    }
  }

  #keepLogs(): void {
    const kept = mkdtempSync(join(tmpdir(), 'controller-logs-'));
    for (const [index, { dir }] of this.controllers.entries())
      copyFileSync(join(dir, 'controller.log'), join(kept, `c${index + 1}.log`));
    process.stdout.write(`logs: ${kept}\n`);
  }

  async end(): Promise<void> {
    this.#isKept = false;
    for (const balancer of this.#balancers) await balancer.close();
    this.#agents?.kill('SIGKILL');
    for (const { daemon } of this.controllers) {
      if (daemon.pid !== undefined) signalProcess(daemon.pid, 'SIGCONT');
      await daemon.kill();
    }
    try {
      await this.postgres?.remove();
      await this.#follower?.remove();
      await this.#network?.remove();
      if (process.env.KEEP) this.#keepLogs();
      rmSync(this.dir, { recursive: true, force: true });
    } finally {
      await this.#realNodes?.end();
    }
  }
}

async function isWell(controller: LabController, signal: AbortSignal): Promise<boolean> {
  const late = new Promise<never>((_, reject) =>
    signal.addEventListener('abort', () => reject(signal.reason)),
  );
  const { status } = await Promise.race([controller.anonymous().send('GET', '/healthz'), late]);
  return status === 200;
}

/** A process that begins says so, whether it stands by or acts. */
function isActing(log: string): boolean {
  return log.lastIndexOf('controller is serving') > log.lastIndexOf('this controller joins');
}
