/**
 * Every directory that the product or libvirt writes to is a small file system of its own. A cell of the matrix fills one of
 * them to the last byte at a named moment of an operation, and looks: what is said of it, and what is there when the space
 * is given back.
 */
import { existsSync, lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { AgentAlone } from '../e2e/agent-alone.ts';
import { waitFor } from '../lab/run.ts';
import type { SmallDisk } from '../lab/small-disk.ts';

/** By their path in the world's directory, MiB each, and where the node sees them; outer ones first. */
const PLACES = {
  pool: ['n1/pools/fast', 192, 'n1/pools/fast'],
  backups: ['n1/pools/bulk', 192, 'n1/pools/bulk'],
  definitions: ['n1/etc', 16, '/etc/libvirt'],
  libvirt: ['n1/lib', 32, '/var/lib/libvirt'],
  running: ['n1/run', 16, '/run/libvirt'],
  nvram: ['n1/lib/qemu/nvram', 16, '/var/lib/libvirt/qemu/nvram'],
  swtpm: ['n1/lib/swtpm', 16, '/var/lib/libvirt/swtpm'],
  journal: ['agent/state', 32, 'agent/state'],
  scratch: ['agent/state/scratch', 16, 'agent/state/scratch'],
} as const;

export type Place = keyof typeof PLACES;
export const PLACE_NAMES = Object.keys(PLACES) as Place[];

/** What happens while the place is full and the operation has ended or can go no further. */
export const ENDINGS = ['space', 'restart', 'crash'] as const;
/**
 * space: it comes back. restart: the agent is started anew on the full disk before. crash: agent and libvirtd are killed, and
 * what only their memory held is gone.
 */
export type Ending = (typeof ENDINGS)[number];

/** A workflow in a world that is looked at before and after. */
export interface Story {
  kind: string;
  /** Brings about what the operation starts from. */
  prepare(): Promise<void>;
  start(): Promise<string>;
  /** What the guest does when the place is full. */
  whileFull?(place: Place): Promise<void>;
  /** Looks whether the world is the one that the end of the operation tells. */
  check(operation: Operation): Promise<void>;
  /** Looks at what only the end of all tells. */
  finish?(): Promise<void>;
}

export interface Cell {
  place: Place;
  moment: string;
  ending: Ending;
}

/** What is there while a guest runs only, or says nothing about operations: a pool gets its mark when the agent next looks at it. */
const PASSING =
  /^(n1\/run\/|n1\/lib\/(qemu\/(domain-|channel|ram|dump|autostart)|dnsmasq|boot|images|sanlock))|\/filler$|\.lock$|\.virtkeep-pool$|\/secrets\//;
const BACKOFF_MS = 240_000;

export class FullPlaces {
  readonly alone: AgentAlone;

  private constructor(alone: AgentAlone) {
    this.alone = alone;
  }

  static async start(loopDisks = process.env.VIRTKEEP_FULL_LOOP === '1'): Promise<FullPlaces> {
    const smallDisks = Object.fromEntries(Object.values(PLACES).map(([path, sizeMiB]) => [path, sizeMiB]));
    return new FullPlaces(await AgentAlone.start({}, { smallDisks, loopDisks }));
  }

  stop(): Promise<void> {
    return this.alone.stop();
  }

  /** As messages name it. */
  seenAs(place: Place): string {
    return PLACES[place][2];
  }

  disk(place: Place): SmallDisk {
    return this.alone.world.smallDisks.get(PLACES[place][0])!;
  }

  /** Names of all files that stay, but for the journal's own. */
  files(): string[] {
    const { dir } = this.alone.world;
    const roots = ['n1/pools', 'n1/etc', 'n1/lib', 'agent/state/scratch'];
    return roots
      .flatMap(root => namesBelow(dir, root))
      .filter(name => !PASSING.test(name))
      .sort();
  }

  /** @returns the operation, when all is done that can be done without the space and, after it is back, all the rest */
  async run(story: Story, { place, moment, ending }: Cell): Promise<Operation> {
    const { alone } = this;
    if (place === 'journal') await this.#newJournalLog();
    const file = alone.pauseFile('full');
    await alone.arm(`${story.kind}.${moment}=pause:${file}`);
    const seen = alone.agent.daemon.log().length;
    const id = await story.start();
    try {
      if (await this.#reached(file, id))
        await alone.whilePaused(file, async () => {
          this.disk(place).fill(0);
          await story.whileFull?.(place);
        });
      await this.#atTheEnd(id, seen);
      if (ending === 'restart') await this.#startAnew();
      if (ending === 'crash') await this.#crash();
    } finally {
      this.disk(place).free();
    }
    if (ending === 'crash') await alone.world.node.startLibvirtd();
    if (ending !== 'space') await alone.restart();
    const operation = await alone.ended(id, BACKOFF_MS);
    await this.#settled(operation);
    return operation;
  }

  /** @returns false when the operation has ended without that moment: a merge too short to have a middle */
  #reached(file: string, id: string): Promise<boolean> {
    return waitFor(
      `${file}.reached, or the end of ${id}`,
      async () => {
        if (existsSync(`${file}.reached`)) return 'yes';
        const { state } = await this.alone.operations.get({ id });
        return state !== OperationState.RUNNING && 'no';
      },
      180_000,
      20,
    ).then(answer => answer === 'yes');
  }

  /** What the journal's log has been given it writes to also on a full disk: it begins with nothing. */
  async #newJournalLog(): Promise<void> {
    await this.alone.agent.daemon.stop();
    await this.alone.up();
  }

  /** It has ended, or waits for the space. */
  async #atTheEnd(id: string, seen: number): Promise<void> {
    await waitFor(
      `the end of ${id}, or what it waits for`,
      async () => {
        if (/end of the operation cannot be written/.test(this.alone.agent.daemon.log().slice(seen)))
          return true;
        const { state, progress } = await this.alone.operations.get({ id });
        if (state !== OperationState.RUNNING) return true;
        return progress?.phase === 'clean_up' && progress.message !== '';
      },
      180_000,
    );
  }

  /** It serves also then: it takes up what was cut off, and lets guests go. */
  async #startAnew(): Promise<void> {
    const { daemon } = this.alone.agent;
    await daemon.kill();
    const seen = daemon.log().length;
    await daemon.spawn({});
    const log = () => daemon.log().slice(seen);
    await waitFor(
      'the agent',
      () => {
        if (daemon.pid === undefined) throw new Error(`the agent ended: ${log().slice(-2000)}`);
        return log().includes('agent is serving') && log().includes('connected to libvirt');
      },
      120_000,
    );
  }

  async #crash(): Promise<void> {
    await this.alone.agent.daemon.kill();
    await this.alone.world.node.killLibvirtd();
  }

  /** Its clean-up went on after its end: the next agent takes it up at once. */
  async #settled({ warnings, id }: Operation): Promise<void> {
    if (!warnings.some(text => text.includes('is not done yet'))) return;
    const { daemon } = this.alone.agent;
    const seen = daemon.log().length;
    await this.alone.restart();
    await waitFor(
      `the clean-up of ${id}`,
      () => daemon.log().slice(seen).includes('effect undone'),
      BACKOFF_MS,
    );
  }
}

function namesBelow(root: string, path: string): string[] {
  const whole = join(root, path);
  if (!existsSync(whole)) return [];
  return readdirSync(whole).flatMap(name => {
    const inner = join(path, name);
    try {
      return lstatSync(join(root, inner)).isDirectory() ? namesBelow(root, inner) : [inner];
    } catch {
      return []; // it went meanwhile
    }
  });
}

/** Each of the cells once, in an order of its own for each seed. */
export function shuffled<T>(items: readonly T[], seed: number): T[] {
  let state = seed >>> 0 || 1;
  const next = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
  return items
    .map(item => ({ item, key: next() }))
    .sort((a, b) => a.key - b.key)
    .map(({ item }) => item);
}
