/**
 * What 50 guests (`--full`: 100) tell of themselves is refreshed by one agent while lists of domains are asked for, of the agent over gRPC and
 * of the controller over REST: no list may take 50 ms. `node test/bench/guest-info.ts`
 *
 * The guests are real VMs that run and do nothing; their agents are scripts, every tenth of which hangs. The agent and the
 * controller are the daemons as they are installed. A list's time is the client's: from the call to the decoded answer.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { type AgentChannel, openAgentChannel } from '../../controller/src/agents/clients.ts';
import { keyFiles } from '../../controller/src/keys/keys.ts';
import { CONTROLLER_URN, ensureCa, issueCertificate } from '../../controller/src/pki/index.ts';
import { waitFor } from '../lab/run.ts';
import { startWorld, type World } from '../lab/world.ts';
import { IdleGuests } from './guest-info-guests.ts';
import { type BenchRow, benchOptions, median, printTable } from './lib.ts';

const { full } = benchOptions();
const GUESTS = full ? 100 : 50;
const HUNG_EVERY = 10;
const ANSWERING = GUESTS - GUESTS / HUNG_EVERY;
const REFRESH_SECONDS = 10;
const AGAIN_MS = 2 * REFRESH_SECONDS * 1000;
const GRPC_EVERY_MS = 20;
const REST_EVERY_MS = 100;
const LIMIT_MS = 50;
const LONG_MS = 300_000;
/** What the kernel counts process times in, a second. */
const TICKS = 100;

/** Calls at a fixed pace, whether those before have been answered or not. */
class Pace {
  readonly name: string;
  readonly #everyMs: number;
  readonly #call: () => Promise<void>;
  readonly #open = new Set<Promise<void>>();
  #timer: NodeJS.Timeout | undefined;
  #times: number[] = [];
  #failed: unknown;

  constructor(name: string, everyMs: number, call: () => Promise<void>) {
    this.name = name;
    this.#everyMs = everyMs;
    this.#call = call;
  }

  start(): void {
    this.#times = [];
    this.#timer = setInterval(() => {
      const one = this.#timed().finally(() => this.#open.delete(one));
      this.#open.add(one);
    }, this.#everyMs);
  }

  /** @returns the calls' times in ms, sorted @throws the first failure */
  async stop(): Promise<number[]> {
    clearInterval(this.#timer);
    await Promise.all(this.#open);
    if (this.#failed !== undefined) throw this.#failed;
    return this.#times.toSorted((first, second) => first - second);
  }

  async #timed(): Promise<void> {
    const begin = performance.now();
    await this.#call().catch((error: unknown) => {
      this.#failed ??= error;
    });
    this.#times.push(performance.now() - begin);
  }
}

/** @param times sorted */
function timeRows(name: string, times: readonly number[], target: number | undefined): BenchRow[] {
  const row = (what: string, value: number) => ({ name: `  ${name}, ${what}`, value, unit: 'ms' });
  return [
    { ...row('median', median(times)), note: `${times.length} lists` },
    row('99 of 100', times[Math.floor(times.length * 0.99)]!),
    { ...row('slowest', times.at(-1)!), ...(target === undefined ? {} : { target }) },
  ];
}

/** Seconds of processor time that a process has had, all its threads. */
function processorSeconds(pid: number): number {
  const [user, system] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ').slice(11, 13);
  return (Number(user) + Number(system)) / TICKS;
}

/** A connection to the agent as the controller has it. */
async function connect({ agent, controller }: World): Promise<AgentChannel> {
  const ca = await ensureCa(keyFiles(join(controller.dir, 'state')));
  const { chainPem, privateKeyPem } = await issueCertificate(ca, {
    commonName: 'bench',
    names: { urns: [CONTROLLER_URN], hosts: [] },
    use: 'client',
    days: 1,
  });
  const target = { id: agent.nodeId, name: agent.node.name, address: `127.0.0.1:${agent.port}` };
  return openAgentChannel(
    target,
    { caPem: ca.certificatePem, chainPem, privateKeyPem },
    new AbortController().signal,
  );
}

class Bench {
  readonly #world: World;
  readonly #guests: IdleGuests;
  readonly #rows: BenchRow[] = [];
  #channel: AgentChannel | undefined;
  #told = 0;

  constructor(world: World, guests: IdleGuests) {
    this.#world = world;
    this.#guests = guests;
  }

  async run(): Promise<boolean> {
    const { agent } = this.#world;
    this.#channel = await connect(this.#world);
    await this.#phase('while the guests start', undefined, async () => {
      await this.#guests.start();
      await this.#allTold();
    });
    await agent.daemon.stop();
    await agent.daemon.start();
    // its first connection is not a list
    await waitFor('the agent', () => this.#answers(), 60_000);
    await this.#phase('after a start of the agent', LIMIT_MS, () => this.#allTold());
    await this.#phase(`asked every ${REFRESH_SECONDS} s`, LIMIT_MS, () => sleep(AGAIN_MS));
    this.#channel.close();
    return printTable(`lists of ${GUESTS} domains while their guests are asked`, this.#rows);
  }

  async #answers(): Promise<boolean> {
    return this.#channel!.clients.node.getInfo({}).then(
      () => true,
      () => false,
    );
  }

  async #allTold(): Promise<void> {
    this.#told = 0;
    await waitFor('what the guests tell', () => this.#told >= ANSWERING, LONG_MS, 20);
  }

  /** Lists at their paces while `work` is done. */
  async #phase(title: string, target: number | undefined, work: () => Promise<void>): Promise<void> {
    const paces = [
      new Pace('gRPC', GRPC_EVERY_MS, () => this.#listByGrpc()),
      new Pace('REST', REST_EVERY_MS, () => this.#listByRest()),
    ];
    const { agent, controller } = this.#world;
    const daemons = [agent.daemon, controller.daemon].map(({ pid }) => pid!);
    const usedBefore = daemons.map(processorSeconds);
    const answersBefore = await this.#guests.answers();
    const begin = performance.now();
    for (const pace of paces) pace.start();
    await work();
    const seconds = (performance.now() - begin) / 1000;
    const note = `${(await this.#guests.answers()) - answersBefore} answers of guests, ${this.#told} told`;
    this.#rows.push({ name: title, value: seconds, unit: 's', note });
    for (const [index, name] of ['the agent', 'the controller'].entries()) {
      const share = (processorSeconds(daemons[index]!) - usedBefore[index]!) / seconds;
      this.#rows.push({ name: `  processor, ${name}`, value: share * 100, unit: '%' });
    }
    for (const pace of paces) this.#rows.push(...timeRows(pace.name, await pace.stop(), target));
  }

  async #listByGrpc(): Promise<void> {
    const { domains } = await this.#channel!.clients.domains.list({});
    this.#told = domains.filter((domain: Domain) => domain.guestInfo?.hostname).length;
  }

  async #listByRest(): Promise<void> {
    await this.#world.rest.get('/api/domains/');
  }
}

/** Rejects when the benchmark is told to stop: its guests must not outlive it. */
const interrupted = new Promise<never>((_resolve, reject) => {
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => reject(new Error(name)));
});
interrupted.catch(() => {});

async function main(): Promise<boolean> {
  const world = await startWorld({
    controller: true,
    agentSettings: { guest: { info_refresh_seconds: REFRESH_SECONDS } },
  });
  let guests: IdleGuests | undefined;
  try {
    guests = await IdleGuests.make(world, GUESTS, HUNG_EVERY);
    return await Promise.race([new Bench(world, guests).run(), interrupted]);
  } finally {
    await guests?.stop();
    await world.stop();
  }
}

// an interrupted one leaves calls behind that nobody waits for
process.exit((await main()) ? 0 : 1);
