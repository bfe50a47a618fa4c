/** A controller as a process, and processes full of simulated agents; what is measured of them from outside. */
import { type ChildProcess, fork } from 'node:child_process';
import { existsSync, readFileSync, rmSync, statSync } from 'node:fs';
import { get as httpsGet } from 'node:https';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { HttpClient } from '@virtkeep/shared/http-client';
import { cpuMs } from '../bench/lib.ts';
import { type LabController, makeController } from '../lab/controller.ts';
import { makeWorldDir, ROOT } from '../lab/paths.ts';
import type { Rest } from '../lab/rest.ts';
import type { FromAgents, ToAgents } from './agents.child.ts';
import type { Measured } from './monitor.ts';
import type { InstallationSize } from './simulated-agent.ts';

const AGENTS_PER_PROCESS = 125;
const WAIT_MS = 200;
/** A list of a thousand nodes is work of its own for who has a thousand to connect to. */
const ASK_MS = 2000;
/** A controller that is not there after this never will be. */
const LONGEST_MS = 900_000;
const MONITOR_WRITES_MS = 1000;

export class ScaleWorld {
  readonly size: InstallationSize;
  readonly dir: string;
  readonly children: ChildProcess[] = [];
  /** Hears of the changes that agents have made. */
  changed: (changes: [string, string, number][]) => void = () => {};
  controller!: LabController;
  rest!: Rest;
  #http!: HttpClient;

  constructor(size: InstallationSize) {
    this.size = size;
    this.dir = makeWorldDir();
  }

  get #monitorFile(): string {
    return join(this.dir, 'monitor.json');
  }

  get databaseFile(): string {
    return join(this.dir, 'state', 'controller.db');
  }

  async makeController(): Promise<void> {
    this.controller = await makeController({
      dir: this.dir,
      settings: {
        log_level: 'info',
        limits: {
          requests_per_minute: 10_000_000,
          event_loop_delay_ms: 3_600_000,
          connections_per_address: 100_000,
        },
      },
    });
  }

  /** @returns how long it took until it answered, ms */
  async startController(): Promise<number> {
    const from = performance.now();
    await this.controller.daemon.spawn({
      NODE_OPTIONS: `--import=${join(ROOT, 'test/scale/monitor.ts')}`,
      VIRTKEEP_SCALE_MONITOR: this.#monitorFile,
    });
    await this.until(async () => {
      if (this.controller.daemon.pid === undefined)
        throw new Error(`the controller ended: ${this.#logEnd()}`);
      if (!existsSync(this.controller.caFile)) return false;
      return this.controller
        .anonymous()
        .send('GET', '/readyz')
        .then(
          ({ status }) => status === 200,
          () => false,
        );
    }, 20);
    const listeningMs = performance.now() - from;
    this.rest ??= await this.controller.admin();
    const ca = readFileSync(this.controller.caFile, 'utf8');
    this.#http = new HttpClient({
      agent: { ca, keepAlive: true, maxSockets: 100 },
      idleTimeoutMs: 600_000,
      maxAnswerBytes: Number.POSITIVE_INFINITY,
    });
    return listeningMs;
  }

  #logEnd(): string {
    return this.controller.daemon.log().slice(-2000);
  }

  /** One request over a connection that is kept. @throws Error unless it is answered with 2xx */
  // biome-ignore lint/suspicious/noExplicitAny: answers of any shape
  async request(method: string, path: string, body?: unknown): Promise<any> {
    const { status, text } = await this.#http.send({
      method,
      url: new URL(path, this.controller.url),
      payload: body === undefined ? undefined : JSON.stringify(body),
      headers: {
        authorization: `jwt ${this.rest.token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
    });
    if (status < 200 || status > 299) throw new Error(`${method} ${path}: ${status} ${text.slice(0, 500)}`);
    return JSON.parse(text);
  }

  // biome-ignore lint/suspicious/noExplicitAny: answers of any shape
  get(path: string): Promise<any> {
    return this.request('GET', path);
  }

  async count(path: string): Promise<number> {
    return (await this.get(`${path}${path.includes('?') ? '&' : '?'}limit=1`)).count;
  }

  async until(what: () => Promise<boolean>, everyMs = WAIT_MS): Promise<void> {
    const end = performance.now() + LONGEST_MS;
    while (!(await what())) {
      if (performance.now() > end) throw new Error(`did not happen: ${what}`);
      await sleep(everyMs);
    }
  }

  /** All nodes are there, and everything that they have is known. */
  async untilComplete(): Promise<number> {
    const { nodes, vms } = this.size;
    const from = performance.now();
    await this.until(async () => {
      const { results } = await this.get('/api/nodes/?limit=1000');
      if (results.filter((node: { status: string }) => node.status === 'ACTIVE').length < nodes) return false;
      return (
        (await this.count('/api/domains/')) === nodes * vms &&
        (await this.count('/api/library/')) >= nodes * vms * 3
      );
    }, ASK_MS);
    return performance.now() - from;
  }

  /** It has nothing to do any more. */
  async untilQuiet(): Promise<void> {
    for (let last = this.cpuMs(); ; ) {
      await sleep(2000);
      const now = this.cpuMs();
      if (now - last < 200) return;
      last = now;
    }
  }

  /** Listens to the event stream. @param heard undefined: it takes what comes. @returns what ends it */
  listen(heard?: (domain: string, description: string) => void): () => void {
    const ca = readFileSync(this.controller.caFile, 'utf8');
    const url = new URL('/api/events/stream/', this.controller.url);
    const headers = { authorization: `jwt ${this.rest.token}` };
    const request = httpsGet(url, { ca, headers }, response => {
      if (response.statusCode !== 200) throw new Error(`the event stream answered ${response.statusCode}`);
      response.on('error', () => {});
      if (!heard) return void response.resume();
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => {
        text += chunk;
        const parts = text.split('\n\n');
        text = parts.pop()!;
        for (const part of parts) {
          if (!part.includes('event: domain')) continue;
          const { record } = JSON.parse(part.slice(part.indexOf('data: ') + 6));
          if (record) heard(record.id, record.description);
        }
      });
    });
    request.on('error', () => {});
    return () => request.destroy();
  }

  /** Asks for a backup of each of these VMs, fifty requests at a time. @returns how many they are */
  async startBackups(domains: readonly string[]): Promise<number> {
    const waiting = [...new Set(domains)];
    const started = waiting.length;
    const lane = async () => {
      for (let domain = waiting.pop(); domain; domain = waiting.pop())
        await this.request('POST', '/api/domains/backup/?async=1', { domain });
    };
    await Promise.all(Array.from({ length: 50 }, lane));
    return started;
  }

  /** No task runs any more. */
  untilIdle(): Promise<void> {
    return this.until(async () => (await this.count('/api/tasks/?status=IN_PROGRESS')) === 0, 500);
  }

  /** How often a node was lost so far. */
  losses(): Promise<number> {
    return this.count('/api/events/?type=warning&name=is%20not%20reachable');
  }

  /** Processor time of the controller so far, ms. */
  cpuMs(): number {
    return cpuMs(this.controller.daemon.pid!);
  }

  /** What the controller has measured since `measureAnew`. */
  async measured(): Promise<Measured> {
    await sleep(MONITOR_WRITES_MS);
    return JSON.parse(readFileSync(this.#monitorFile, 'utf8'));
  }

  measureAnew(): void {
    process.kill(this.controller.daemon.pid!, 'SIGUSR2');
  }

  /** Memory of the controller without what nobody needs any more. */
  async keptMemory(): Promise<Pick<Measured, 'rssBytes' | 'heapBytes'>> {
    process.kill(this.controller.daemon.pid!, 'SIGWINCH');
    return this.measured();
  }

  databaseBytes(): number {
    return ['', '-wal'].reduce(
      (sum, end) => sum + (statSync(`${this.databaseFile}${end}`, { throwIfNoEntry: false })?.size ?? 0),
      0,
    );
  }

  /** Enrols all nodes through REST; their agents do not listen yet. @returns ms that it took */
  async enrol(): Promise<number> {
    const { nodes } = this.size;
    const ca = readFileSync(this.controller.caFile, 'utf8');
    const tokens: string[] = [];
    for (let node = 0; node < nodes; node += 1)
      tokens.push((await this.request('POST', '/api/nodes/', { verbose_name: `node-${node}` })).token);
    for (let first = 0; first < nodes; first += AGENTS_PER_PROCESS) {
      const child = fork(join(ROOT, 'test/scale/agents.child.ts'), { execArgv: ['--no-warnings'] });
      child.on('message', (message: FromAgents) => {
        if (message.told === 'changed') this.changed(message.changes);
      });
      this.children.push(child);
    }
    const from = performance.now();
    await Promise.all(
      this.children.map((child, index) => {
        const first = index * AGENTS_PER_PROCESS;
        const last = Math.min(nodes, first + AGENTS_PER_PROCESS);
        const { url } = this.controller;
        return tellChild(child, {
          do: 'enrol',
          first,
          last,
          size: this.size,
          url,
          ca,
          tokens: tokens.slice(first, last),
        });
      }),
    );
    return performance.now() - from;
  }

  async tellAgents(order: ToAgents): Promise<void> {
    await Promise.all(this.children.map(child => tellChild(child, order)));
  }

  nodesOf(child: ChildProcess): number {
    const first = this.children.indexOf(child) * AGENTS_PER_PROCESS;
    return Math.min(this.size.nodes, first + AGENTS_PER_PROCESS) - first;
  }

  async end(): Promise<void> {
    for (const child of this.children) child.kill('SIGKILL');
    await this.controller?.daemon.kill().catch(() => {});
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Listens all the time: what comes together is told together. */
function tellChild(child: ChildProcess, order: ToAgents): Promise<void> {
  return new Promise((resolve, reject) => {
    const hear = (message: FromAgents) => {
      if (message.told === 'changed') return;
      if (message.told === 'operations') return;
      child.off('message', hear);
      if (message.told === 'failed') reject(new Error(message.reason));
      else resolve();
    };
    child.on('message', hear);
    child.send(order);
  });
}
