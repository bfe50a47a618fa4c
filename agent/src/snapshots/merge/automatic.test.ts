/**
 * Removing the state of an operation, against an oracle: somebody does to the domain's disks what he likes before and in the
 * middle of it, each step may be the last one before a crash, and whatever is written to, or was the newest of a disk that
 * nobody has now, must read after every step what it did.
 */
import { describe, expect, test } from '@jest/globals';
import { type DomainMetadata, type LooseLayer, lastingMetadata } from '../../domain-xml/index.ts';
import type { SavedState } from '../chain.ts';
import { nextStepOfAutomatic } from './automatic.ts';
import type { ChainPicture, LiveTop } from './picture.ts';
import type { MergeStep, StateFiles } from './step.ts';

interface File {
  backing: string | null;
  blocks: Map<number, number>;
}

interface Job {
  kind: string;
  above: string;
  layer: string | null;
  ready: boolean;
  foreign: boolean;
}

const NAME = 'virtkeep-tmp-1';
const GOAL = { name: NAME, countsAsDeletion: false };

function randomOf(seed: number): (below: number) => number {
  let state = seed * 2_654_435_761 + 12_345;
  return below => {
    state = (Math.imul(state ^ (state >>> 15), 2_246_822_519) + 3_266_489_917) | 0;
    return ((state ^ (state >>> 13)) >>> 0) % below;
  };
}

function stateOf(name: string, frozen: Record<string, string>, overlays: Record<string, string>): SavedState {
  const parts = { memory: 'no' as const, memoryPath: null, internalDisks: [], deleting: false, xml: '' };
  return { name, parent: null, current: true, description: '', createdUnix: 1, frozen, overlays, ...parts };
}

class Node {
  readonly files = new Map<string, File>();
  readonly live = new Map<string, string>();
  readonly config = new Map<string, string>();
  readonly others = new Set<string>();
  readonly jobs = new Map<string, Job>();
  states: SavedState[] = [];
  metadata: DomainMetadata = { template: false, templateVersion: 0, attachments: [] };
  running = true;
  /** Content that has no user now, and must be found again: any file may hold it. */
  readonly homeless = new Set<string>();
  /** Files that somebody wrote to. */
  readonly written = new Set<string>();

  constructor(targets: string[]) {
    for (const target of targets) {
      this.files.set(`/${target}`, { backing: null, blocks: new Map([[0, 1]]) });
      this.live.set(target, `/${target}`);
      this.config.set(target, `/${target}`);
    }
  }

  /** @param made how far it gets: of how many disks the file is there, and whether QEMU uses them */
  begin(made: { files: number; isUsed: boolean; isKnown: boolean }): StateFiles {
    const overlays = [...this.config].map(([targetDev, layer]) => ({
      targetDev,
      layer,
      path: `${layer}.tmp`,
    }));
    const frozen = Object.fromEntries(overlays.map(({ targetDev, layer }) => [targetDev, layer]));
    for (const [index, { targetDev, layer, path }] of overlays.entries()) {
      if (index >= made.files) break;
      this.files.set(path, { backing: layer, blocks: new Map() });
      if (!made.isUsed) continue;
      this.live.set(targetDev, path);
      this.config.set(targetDev, path);
    }
    const paths = Object.fromEntries(overlays.map(({ targetDev, path }) => [targetDev, path]));
    if (made.isKnown) this.states.push(stateOf(NAME, frozen, paths));
    return { overlays: overlays.map(({ targetDev, path }) => ({ targetDev, path })), noted: true };
  }

  picture(): ChainPicture {
    const live = [...this.live].map(([target, path]): [string, LiveTop] => {
      const job = this.jobs.get(target);
      const isMirror = job !== undefined && job.kind !== 'commit';
      const mirror = isMirror ? { job: job.kind, ready: job.ready, path: job.layer } : null;
      return [target, { path, mirror, job: job?.kind ?? null }];
    });
    const automatic = this.states.filter(({ name }) => name === NAME);
    const foreign = new Map(
      [...this.others].flatMap(top => this.chain(top).map(path => [path, 'another VM'])),
    );
    return {
      domainId: '11111111-2222-4333-8444-555555555555',
      power: this.running ? 'running' : 'off',
      persistent: true,
      memorySaved: false,
      gone: new Set(),
      inner: new Set(),
      live: new Map(this.running ? live : []),
      config: this.config,
      states: this.states.filter(state => !automatic.includes(state)),
      automatic,
      files: new Map([...this.files].map(([path, { backing }]) => [path, backing])),
      empty: new Set([...this.files].filter(([, { blocks }]) => blocks.size === 0).map(([path]) => path)),
      since: new Map(
        [...this.files.entries()].map(([path, { backing }]) => [
          path,
          this.written.has(backing!) ? 'written' : 'same',
        ]),
      ),
      metadata: this.metadata,
      foreign: foreign as Map<string, string>,
      saving: false,
    };
  }

  chain(top: string): string[] {
    const found: string[] = [];
    for (let at: string | null = top; at !== null; at = this.files.get(at)!.backing) found.push(at);
    return found;
  }

  content(top: string): string {
    const blocks = new Map<number, number>();
    for (const path of this.chain(top))
      for (const [block, value] of this.files.get(path)!.blocks)
        if (!blocks.has(block)) blocks.set(block, value);
    return JSON.stringify([...blocks].sort(([a], [b]) => a - b));
  }

  write(target: string, block: number, value: number): void {
    const map = this.running ? this.live : this.config;
    const path = map.get(target);
    if (path === undefined) return;
    this.files.get(path)!.blocks.set(block, value);
    this.written.add(path);
  }

  /** What everybody reads, and whether what nobody has is still somewhere. */
  reading(): object {
    const found: Record<string, string> = {};
    if (this.running) for (const [target, top] of this.live) found[`live ${target}`] = this.content(top);
    for (const [target, top] of this.config)
      if (!this.running || !this.#isLiveSomewhere(top)) found[`next ${target}`] = this.content(top);
    for (const top of this.others) found[`other ${top}`] = this.content(top);
    for (const { name, frozen } of this.states)
      if (name !== NAME)
        for (const [target, path] of Object.entries(frozen)) found[`${name} ${target}`] = this.content(path);
    const everywhere = new Set([...this.files.keys()].map(path => this.content(path)));
    found.lost = [...this.homeless].filter(content => !everywhere.has(content)).join();
    return found;
  }

  /** What the next start has of a disk that runs follows it when a merge ends. */
  #isLiveSomewhere(top: string): boolean {
    return [...this.live.values()].some(
      path => this.chain(path).includes(top) || this.chain(top).includes(path),
    );
  }

  #move(from: string, to: string): void {
    for (const file of this.files.values()) if (file.backing === from) file.backing = to;
    for (const map of [this.live, this.config])
      for (const [target, top] of map)
        if (top === from && (map === this.config || this.running)) map.set(target, to);
  }

  #merge(above: string, layer: string, isWhole: boolean): void {
    expect(this.files.get(above)!.backing).toBe(layer);
    for (const [block, value] of this.files.get(above)!.blocks) {
      this.files.get(layer)!.blocks.set(block, value);
      if (!isWhole) return;
    }
  }

  #requireOwn(target: string): void {
    expect(this.jobs.get(target)?.foreign ?? false).toBe(false);
  }

  act(step: MergeStep, isWhole: boolean): unknown {
    switch (step.do) {
      case 'note':
        this.metadata = this.running ? step.metadata : lastingMetadata(step.metadata);
        return;
      case 'reparent':
        for (const state of this.states) if (step.states.includes(state.name)) state.parent = step.parent;
        return;
      case 'forget':
        expect(this.states.some(({ parent }) => parent === step.name)).toBe(false);
        this.states = this.states.filter(({ name }) => name !== step.name);
        return;
      case 'commit_active':
      case 'commit_middle': {
        expect(this.jobs.has(step.targetDev)).toBe(false);
        const kind = step.do === 'commit_active' ? 'active-commit' : 'commit';
        expect(this.live.get(step.targetDev) === step.above).toBe(kind === 'active-commit');
        this.jobs.set(step.targetDev, {
          kind,
          above: step.above,
          layer: step.layer,
          ready: false,
          foreign: false,
        });
        return this.#merge(step.above, step.layer, isWhole);
      }
      case 'wait': {
        this.#requireOwn(step.targetDev);
        const job = this.jobs.get(step.targetDev)!;
        this.#merge(job.above, job.layer!, true);
        if (job.kind === 'active-commit') {
          job.ready = true;
          return;
        }
        for (const file of this.files.values()) if (file.backing === job.above) file.backing = job.layer;
        this.jobs.delete(step.targetDev);
        return;
      }
      case 'pivot': {
        this.#requireOwn(step.targetDev);
        const { above, layer } = this.jobs.get(step.targetDev)!;
        this.jobs.delete(step.targetDev);
        this.live.set(step.targetDev, layer!);
        if (this.config.get(step.targetDev) === above) this.config.set(step.targetDev, layer!);
        return isWhole && this.#noteMerged(step);
      }
      case 'wait_for_job':
        // whoever started it ends it
        this.jobs.delete(step.targetDev);
        return;
      case 'commit_offline':
        this.#merge(step.above, step.layer, isWhole);
        if (!isWhole) return;
        this.#noteMerged(step);
        this.#move(step.above, step.layer);
        return this.#rename(step);
      case 'commit_detached':
        this.#merge(step.above, step.layer, isWhole);
        return isWhole && this.#noteMerged(step);
      case 'move_readers':
        return this.#move(step.above, step.layer);
      case 'rename':
        return this.#rename(step);
      case 'remove_file':
        this.files.delete(step.path);
        return;
      default:
        throw new Error(step.do);
    }
  }

  #noteMerged({ above, layer }: { above: string; layer: string }): void {
    const looseLayers = this.metadata.looseLayers?.map(
      (loose): LooseLayer =>
        loose.path === layer && loose.merging === above ? { ...loose, stage: 'merged' } : loose,
    );
    this.metadata = { ...this.metadata, ...(looseLayers ? { looseLayers } : {}) };
  }

  #rename({ above, layer }: { above: string; layer: string }): void {
    for (const { frozen } of this.states)
      for (const [target, path] of Object.entries(frozen)) if (path === above) frozen[target] = layer;
  }

  stop(): void {
    this.running = false;
    this.jobs.clear();
    this.metadata = lastingMetadata(this.metadata);
  }

  start(): void {
    this.running = true;
    this.live.clear();
    for (const [target, top] of this.config) this.live.set(target, top);
  }
}

/** What somebody does with virsh. */
function interfere(node: Node, random: (below: number) => number, value: number): unknown {
  const targets = [...node.config.keys()];
  const target = targets[random(targets.length || 1)];
  if (target === undefined) return;
  const top = node.config.get(target)!;
  const isFree = !node.jobs.has(target);
  switch (random(11)) {
    case 0: // another target, from the next start on
      node.config.delete(target);
      node.config.set(`${target}x`, top);
      return;
    case 1: // taken away
      if (node.running) return;
      node.config.delete(target);
      // the file of before, put back and not used, cannot be told from one that was never put back
      if (node.written.has(top) || !node.files.has(`${top}.tmp`)) node.homeless.add(node.content(top));
      return;
    case 2: // moved to another VM
      if (node.running) return;
      node.config.delete(target);
      node.others.add(top);
      return;
    case 3: // moved to another VM under the name that it had before
      if (node.running || node.files.get(top)!.backing === null) return;
      node.config.delete(target);
      node.homeless.add(node.content(top));
      node.others.add(node.files.get(top)!.backing!);
      return;
    case 4: // a layer without a state
      if (!isFree || !node.running || node.live.get(target) !== top) return;
      node.files.set(`/layer${value}`, { backing: top, blocks: new Map() });
      node.live.set(target, `/layer${value}`);
      node.config.set(target, `/layer${value}`);
      return;
    case 5: // a state of all its disks
      if (node.jobs.size > 0 || node.running) return;
      {
        const frozen = Object.fromEntries(node.config);
        const overlays: Record<string, string> = {};
        for (const [dev, below] of node.config) {
          overlays[dev] = `/state${value}${dev}`;
          node.files.set(overlays[dev], { backing: below, blocks: new Map() });
          node.config.set(dev, overlays[dev]);
        }
        const parent = node.states.at(-1)?.name ?? null;
        node.states.push({ ...stateOf(`theirs${value}`, frozen, overlays), parent });
      }
      return;
    case 6: // a copy, or a commit of his own
      if (isFree && node.running && node.live.has(target)) {
        const above = node.live.get(target)!;
        const layer = random(2) ? '/copy' : node.files.get(above)!.backing;
        if (layer !== null)
          node.jobs.set(target, { kind: layer === '/copy' ? 'copy' : 'active-commit', above, layer, ready: true, foreign: true });
      }
      return; // biome-ignore format: one record
    case 7:
      return node.running ? node.stop() : node.start();
    case 8: // the file of before put back, by hand
    case 9: {
      const below = node.files.get(top)!.backing;
      const isKept = node.states.some(
        ({ name, frozen }) => name !== NAME && Object.values(frozen).includes(top),
      );
      if (below === null || isKept || !isFree) return;
      if (node.running && node.live.get(target) !== top) return;
      if (node.files.get(top)!.blocks.size > 0) node.homeless.add(node.content(top));
      if (!node.running) return node.config.set(target, below);
      node.live.set(target, below);
      if (random(2)) node.config.set(target, below);
      node.write(target, 9, value);
      return;
    }
    default:
      return node.write(target, random(10), value);
  }
}

function run(node: Node, made: StateFiles, random: (below: number) => number): string[] {
  const before = node.reading();
  for (let steps = 0; ; steps++) {
    expect(steps).toBeLessThan(200);
    const step = nextStepOfAutomatic(node.picture(), GOAL, made);
    if (step.do === 'done') return step.left ?? [];
    const isWhole = random(5) > 0;
    node.act(step, isWhole);
    expect({ step, reading: node.reading() }).toEqual({ step, reading: before });
  }
}

describe('the state of an operation is removed', () => {
  test.each(Array.from({ length: 400 }, (_none, seed) => seed))('seed %i', seed => {
    const random = randomOf(seed + 1);
    const node = new Node(['vda', 'vdb', 'vdc']);
    if (random(3) === 0) node.stop();
    const made = node.begin({ files: 3, isUsed: true, isKnown: random(4) > 0 });
    for (const [index, target] of ['vda', 'vdb', 'vdc'].entries())
      if (random(3)) node.write(target, 1 + random(5), 10 + index);
    for (let count = random(7); count > 0; count--) interfere(node, random, 100 + count);
    const left = run(node, made, random);
    expect(node.states.some(({ name }) => name === NAME)).toBe(false);
    const there = made.overlays.filter(({ path }) => node.files.has(path));
    expect(left).toHaveLength(there.length);
    const used = [...node.others, ...node.config.values(), ...(node.running ? node.live.values() : [])];
    const files = used.flatMap(top => node.chain(top));
    for (const { path } of there) {
      const below = node.files.get(path)!.backing!;
      expect(files.some(file => file === path || file === below) || node.written.has(below)).toBe(true);
    }
  });

  test.each([0, 1, 2, 3])('that was made in part, %i files', files => {
    const node = new Node(['vda', 'vdb', 'vdc']);
    const made = node.begin({ files, isUsed: false, isKnown: false });
    expect(run(node, made, randomOf(1))).toEqual([]);
    expect([...node.files.keys()]).toEqual(['/vda', '/vdb', '/vdc']);
  });
});

describe('a definition of before that others put in place', () => {
  test.each(Array.from({ length: 100 }, (_none, seed) => seed))('in the middle of it, seed %i', seed => {
    const random = randomOf(seed + 1);
    const node = new Node(['vda', 'vdb']);
    if (random(2)) node.stop();
    const made = node.begin({ files: 2, isUsed: true, isKnown: true });
    for (const target of ['vda', 'vdb']) node.write(target, 1, 11);
    const expected = ['/vda.tmp', '/vdb.tmp'].map(path => node.content(path));
    const when = random(16);
    for (let steps = 0; ; steps += 1) {
      if (steps === when) {
        // what the guest reads from now on is what they made of it; what it wrote must be somewhere
        node.stop();
        for (const target of ['vda', 'vdb']) node.config.set(target, `/${target}`);
        if (random(2)) node.start();
      }
      const step = nextStepOfAutomatic(node.picture(), GOAL, made);
      if (step.do === 'done' && steps >= when) {
        expect(step.left).toHaveLength(made.overlays.filter(({ path }) => node.files.has(path)).length);
        break;
      }
      if (step.do !== 'done') node.act(step, random(5) > 0);
      const contents = new Set([...node.files.keys()].map(path => node.content(path)));
      expect({ step, lost: expected.filter(content => !contents.has(content)) }).toEqual({ step, lost: [] });
    }
  });

  test('of an agent of before, which noted no more than that it merges: what is in place counts as merged', () => {
    const node = new Node(['vda']);
    const made = node.begin({ files: 1, isUsed: true, isKnown: true });
    node.metadata.looseLayers = [{ targetDev: 'vda', path: '/vda', overlay: false, merging: '/vda.tmp' }];
    node.live.set('vda', '/vda');
    node.config.set('vda', '/vda');
    expect(run(node, made, randomOf(1))).toEqual([]);
    expect([...node.files.keys()]).toEqual(['/vda']);
  });
});

describe('an overlay whose disk went on without it', () => {
  function putBack(): { node: Node; made: StateFiles } {
    const node = new Node(['vda']);
    const made = node.begin({ files: 1, isUsed: true, isKnown: true });
    node.write('vda', 1, 11);
    node.live.set('vda', '/vda');
    node.write('vda', 2, 12);
    return { node, made };
  }

  test('in the running guest: it stays, and the next start goes on with what the guest has', () => {
    const { node, made } = putBack();
    expect(run(node, made, randomOf(1))).toEqual(['/vda.tmp (/vda is used without it)']);
    expect([...node.config]).toEqual([['vda', '/vda']]);
    expect(node.content('/vda')).toBe('[[0,1],[2,12]]');
    expect(node.content('/vda.tmp')).toContain('[1,11]');
  });

  test('and was taken away then: neither is changed', () => {
    const { node, made } = putBack();
    node.stop();
    node.config.clear();
    expect(run(node, made, randomOf(1))).toEqual(['/vda.tmp (/vda was written to without it)']);
    expect(node.content('/vda')).toBe('[[0,1],[2,12]]');
  });
});

describe('overlays that only the operation wrote to, and whose domain may not have got them', () => {
  function changed(isUsed: boolean): { node: Node; made: StateFiles } {
    const node = new Node(['vda', 'vdb']);
    node.stop();
    const made = { ...node.begin({ files: 2, isUsed, isKnown: false }), unusedIsNothing: true };
    for (const { path } of made.overlays) {
      node.files.get(path)!.blocks.set(1, 11);
      node.written.add(path);
    }
    return { node, made };
  }

  test('are removed as long as it has not, also when their disk was taken away', () => {
    const { node, made } = changed(false);
    node.config.delete('vda');
    expect(run(node, made, randomOf(1))).toEqual([]);
    expect([...node.files.keys()]).toEqual(['/vda', '/vdb']);
    expect([node.content('/vda'), node.content('/vdb')]).toEqual(['[[0,1]]', '[[0,1]]']);
  });

  test.each(Array.from({ length: 20 }, (_none, seed) => seed))('are merged once it has, seed %i', seed => {
    const { node, made } = changed(true);
    if (seed % 2) node.start();
    expect(run(node, made, randomOf(seed))).toEqual([]);
    expect([...node.files.keys()]).toEqual(['/vda', '/vdb']);
    expect([node.content('/vda'), node.content('/vdb')]).toEqual(['[[0,1],[1,11]]', '[[0,1],[1,11]]']);
  });

  test('stay when another VM uses them', () => {
    const { node, made } = changed(false);
    node.others.add('/vda.tmp');
    expect(run(node, made, randomOf(1))).toEqual(['/vda.tmp (used by another VM)']);
  });
});

describe('a domain that is off, whose definition names overlays', () => {
  function returned(isNoted = false): { node: Node; made: StateFiles } {
    const node = new Node(['vda', 'vdb']);
    const made = node.begin({ files: 2, isUsed: true, isKnown: true });
    node.write('vda', 1, 11);
    node.write('vdb', 1, 12);
    node.stop();
    if (isNoted) node.act(nextStepOfAutomatic(node.picture(), GOAL, made), true);
    // as another node does that has the former definition
    node.files.get('/vda')!.blocks.set(2, 20);
    node.written.add('/vda');
    return { node, made };
  }

  test('and that ran elsewhere meanwhile from the files below: none of them is merged, and all are told', () => {
    const { node, made } = returned();
    expect(run(node, made, randomOf(1))).toEqual([
      '/vda.tmp (/vda was written to without it)',
      '/vdb.tmp (another disk of then was written to without its layer)',
    ]);
    expect([node.content('/vda'), node.content('/vdb')]).toEqual(['[[0,1],[2,20]]', '[[0,1]]']);
    expect([...node.config.values()]).toEqual(['/vda.tmp', '/vdb.tmp']);
  });

  test('what a merge that had begun has written itself counts for nothing', () => {
    const { node, made } = returned(true);
    expect(run(node, made, randomOf(1))).toEqual([]);
    expect([...node.config.values()]).toEqual(['/vda', '/vdb']);
  });

  test('an agent of an earlier version noted its merges in the journal only', () => {
    const { node, made } = returned();
    expect(run(node, { overlays: made.overlays }, randomOf(1))).toEqual([]);
  });
});

describe('while libvirt makes a state', () => {
  function whileSaving(isKnown: boolean, memoryPath?: string): MergeStep {
    const node = new Node(['vda']);
    const made = node.begin({ files: 0, isUsed: false, isKnown });
    if (memoryPath !== undefined) node.files.set(memoryPath, { backing: null, blocks: new Map() });
    const picture = { ...node.picture(), saving: true };
    return nextStepOfAutomatic(picture, GOAL, memoryPath === undefined ? made : { ...made, memoryPath });
  }

  test('with our memory file: it is ended', () => {
    expect(whileSaving(false, '/m')).toEqual({ do: 'abort_save' });
  });

  test('without memory, or after ours was made: it is waited for', () => {
    expect(whileSaving(false)).toEqual({ do: 'wait_for_state' });
    expect(whileSaving(true, '/m')).toEqual({ do: 'wait_for_state' });
  });
});

test.each([
  ['goes', false],
  ['stays when somebody else uses it', true],
])('its memory file %s', (_what, isForeign) => {
  const node = new Node(['vda']);
  const made = { ...node.begin({ files: 0, isUsed: false, isKnown: false }), memoryPath: '/m' };
  node.files.set('/m', { backing: null, blocks: new Map() });
  const picture = { ...node.picture(), foreign: new Map(isForeign ? [['/m', 'other']] : []) };
  const step = nextStepOfAutomatic(picture, GOAL, made);
  expect(step).toMatchObject(isForeign ? { do: 'done' } : { do: 'remove_memory', path: '/m' });
});

describe('whose a job is', () => {
  const active = (node: Node, foreign: boolean) =>
    node.jobs.set('vda', { kind: 'active-commit', above: '/vda.tmp', layer: '/vda', ready: true, foreign });

  test('the same merge by somebody else is waited for', () => {
    const node = new Node(['vda']);
    const made = node.begin({ files: 1, isUsed: true, isKnown: true });
    active(node, true);
    const step = { do: 'wait_for_job', targetDev: 'vda', job: 'active-commit' };
    expect(nextStepOfAutomatic(node.picture(), GOAL, made)).toEqual(step);
  });

  test('an earlier version of the agent noted its merges in the journal only', () => {
    const node = new Node(['vda']);
    const { overlays } = node.begin({ files: 1, isUsed: true, isKnown: true });
    active(node, false);
    expect(run(node, { overlays }, randomOf(1))).toEqual([]);
    expect([...node.files.keys()]).toEqual(['/vda']);
  });

  test('a commit into another file than the noted one is not ours', () => {
    const node = new Node(['vda']);
    const made = node.begin({ files: 1, isUsed: true, isKnown: true });
    for (let step = nextStepOfAutomatic(node.picture(), GOAL, made); step.do !== 'commit_active'; ) {
      node.act(step, true);
      step = nextStepOfAutomatic(node.picture(), GOAL, made);
    }
    const job = { kind: 'active-commit', above: '/vda.tmp', layer: '/base', ready: true, foreign: true };
    node.jobs.set('vda', job);
    expect(nextStepOfAutomatic(node.picture(), GOAL, made)).toMatchObject({ do: 'wait_for_job' });
  });
});
