/**
 * Random histories of a domain against an oracle: disks are maps of blocks, merges and reverts are carried out on them as
 * the planners say, each step may be the last one before a crash, and after every step the domain, each state and each
 * detached disk must read what they did.
 */
import { describe, expect, test } from '@jest/globals';
import { type DomainMetadata, type LooseLayer, lastingMetadata } from '../../domain-xml/index.ts';
import type { SavedState } from '../chain.ts';
import { isUnused, planRevert, revertedMetadata, revertRefusal } from '../revert-plan.ts';
import { type ChainPicture, filesFrom, type LiveTop } from './picture.ts';
import { nextMergeStep, removalRefusal } from './plan.ts';
import type { MergeStep } from './step.ts';

interface File {
  backing: string | null;
  blocks: Map<number, number>;
  size: number;
  /** Internal states in it, by name. */
  inner?: Map<string, { blocks: Map<number, number>; size: number }>;
}

/** Numbers that look random, the same for the same seed. */
function randomOf(seed: number): (below: number) => number {
  let state = seed * 2_654_435_761 + 12_345;
  return below => {
    state = (Math.imul(state ^ (state >>> 15), 2_246_822_519) + 3_266_489_917) | 0;
    return ((state ^ (state >>> 13)) >>> 0) % below;
  };
}

class FakeNode {
  readonly files = new Map<string, File>();
  readonly tops = new Map<string, string>();
  readonly jobs = new Map<string, { above: string; layer: string; active: boolean; ready: boolean }>();
  readonly detached = new Set<string>();
  states: SavedState[] = [];
  metadata: DomainMetadata = { template: false, templateVersion: 0, attachments: [] };
  running = false;
  /** Files that the images' room left, since an internal state that libvirt lists names them. */
  readonly left = new Set<string>();
  /** Those of them that a revert left: the user was told, and nobody knows them once the state is gone. */
  readonly #orphans = new Set<string>();
  /** The guest was stopped between the end of a merge and its note: which of two files has the newest bytes nobody knows. */
  isUnsure = false;
  #names = 0;

  picture(): ChainPicture {
    const live = [...this.tops].map(([target, path]): [string, LiveTop] => {
      const job = this.jobs.get(target);
      const kind = job && (job.active ? 'active-commit' : 'commit');
      const mirror = job?.active ? { job: kind!, ready: job.ready, path: job.layer } : null;
      return [target, { path, mirror, job: kind ?? null }];
    });
    return {
      domainId: '11111111-2222-4333-8444-555555555555',
      power: this.running ? 'running' : 'off',
      persistent: true,
      memorySaved: false,
      gone: new Set(),
      inner: new Set([...this.files].filter(([, { inner }]) => inner?.size).map(([path]) => path)),
      live: new Map(this.running ? live : []),
      config: this.tops,
      states: this.states,
      automatic: [],
      empty: new Set(),
      since: new Map(),
      saving: false,
      files: new Map([...this.files].map(([path, file]) => [path, file.backing])),
      metadata: this.metadata,
      foreign: new Map([...this.left].map(path => [path, 'others'])),
    };
  }

  /** What is read from a file with all below it, or from an internal state in it. */
  content(path: string, name?: string): string {
    const own = name === undefined ? this.files.get(path)! : this.files.get(path)!.inner!.get(name)!;
    const blocks = new Map(own.blocks);
    for (let at = this.files.get(path)!.backing; at !== null; ) {
      const file: File | undefined = this.files.get(at);
      if (!file) throw new Error(`${at} is missing`);
      for (const [block, value] of file.blocks) if (!blocks.has(block)) blocks.set(block, value);
      at = file.backing;
    }
    return JSON.stringify([own.size, [...blocks].sort(([a], [b]) => a - b)]);
  }

  /** A new disk, perhaps in place of another. */
  add(target: string): void {
    const former = this.tops.get(target);
    if (former !== undefined) this.detached.add(former);
    const path = `/d/${target}${this.#names++}`;
    this.files.set(path, { backing: null, blocks: new Map(), size: 10 });
    this.tops.set(target, path);
  }

  create(name: string): void {
    const overlays: Record<string, string> = {};
    const frozen = Object.fromEntries(this.tops);
    for (const [target, top] of this.tops) overlays[target] = this.#overlay(target, top);
    const parent = this.states.find(({ current }) => current)?.name ?? null;
    for (const state of this.states) state.current = false;
    const frozenFormats = Object.fromEntries([...this.tops.keys()].map(target => [target, 'qcow2']));
    this.states.push({
      name, parent, current: true, description: '', createdUnix: this.#names, memory: 'no', memoryPath: null,
      overlays, frozen, frozenFormats, internalDisks: [], deleting: false, xml: '',
    }); // biome-ignore format: one record
  }

  /** An internal state, which libvirt makes of all disks and while no job runs. */
  createInner(name: string): void {
    const targets = [...this.tops.keys()];
    for (const path of this.tops.values()) {
      const file = this.files.get(path)!;
      file.inner ??= new Map();
      file.inner.set(name, { blocks: new Map(file.blocks), size: file.size });
    }
    const parent = this.states.find(({ current }) => current)?.name ?? null;
    for (const state of this.states) state.current = false;
    this.states.push({
      name, parent, current: true, description: '', createdUnix: this.#names, memory: 'no', memoryPath: null,
      overlays: {}, frozen: Object.fromEntries(this.tops), internalDisks: targets, deleting: false,
      xml: '<domainsnapshot><name>inner</name></domainsnapshot>',
    }); // biome-ignore format: one record
  }

  /** As libvirt does it: in the files themselves. */
  #revertInner(state: SavedState): void {
    this.metadata = lastingMetadata({ ...this.metadata, statesDeleted: NOW });
    this.tops.clear();
    for (const [target, path] of Object.entries(state.frozen)) {
      const file = this.files.get(path)!;
      const { blocks, size } = file.inner!.get(state.name)!;
      Object.assign(file, { blocks: new Map(blocks), size });
      this.tops.set(target, path);
    }
  }

  #overlay(target: string, backing: string): string {
    const path = `/d/${target}${this.#names++}`;
    this.files.set(path, { backing, blocks: new Map(), size: this.files.get(backing)!.size });
    this.tops.set(target, path);
    return path;
  }

  revert(state: SavedState): void {
    if (state.internalDisks.length > 0) this.#revertInner(state);
    else this.#revertExternal(state);
    for (const other of this.states) other.current = other === state;
  }

  #revertExternal(state: SavedState): void {
    const plan = planRevert(this.picture(), state, String(this.#names++));
    const { overlays, unused } = plan;
    this.metadata = lastingMetadata(revertedMetadata(this.picture(), plan, NOW));
    for (const target of [...this.tops.keys()]) this.tops.delete(target);
    for (const { targetDev, backing } of overlays)
      state.overlays[targetDev] = this.#overlay(targetDev, backing.path);
    for (const path of unused)
      if (isUnused(this.picture(), path) && !this.#removeFile(path)) this.#orphans.add(path);
  }

  /** @param isWhole false: the step is cut off in its middle, where it has one */
  act(step: MergeStep, isWhole: boolean): unknown {
    switch (step.do) {
      case 'note':
        this.metadata = this.running ? step.metadata : lastingMetadata(step.metadata);
        return;
      case 'reparent':
        for (const state of this.states)
          if (step.states.includes(state.name)) {
            state.parent = step.parent;
            if (!isWhole) return;
          }
        return;
      case 'forget':
        return this.#forget(step.name);
      case 'commit_active':
      case 'commit_middle':
        this.jobs.set(step.targetDev, { ...step, active: step.do === 'commit_active', ready: false });
        return this.#merge(step.above, step.layer, isWhole);
      case 'wait':
        return this.#proceed(step.targetDev);
      case 'pivot':
        this.tops.set(step.targetDev, this.jobs.get(step.targetDev)!.layer);
        this.jobs.delete(step.targetDev);
        return isWhole && this.#noteMerged(step);
      case 'commit_offline':
        this.#merge(step.above, step.layer, isWhole);
        if (!isWhole) return;
        this.#noteMerged(step);
        this.#move(step.readers, step.above, step.layer, true);
        return this.#rename(step);
      case 'move_readers':
        return this.#move(step.readers, step.above, step.layer, isWhole);
      case 'rename':
        return this.#rename(step);
      case 'remove_file':
        this.#removeFile(step.path);
        return;
      case 'native_delete':
        for (const [path, { inner }] of this.files) {
          inner?.delete(step.name);
          if (!inner?.size && this.#orphans.has(path)) this.files.delete(path);
        }
        for (const state of this.states)
          if (state.parent === step.name)
            state.parent = this.states.find(({ name }) => name === step.name)!.parent;
        return this.#forget(step.name);
      default:
        throw new Error(step.do);
    }
  }

  #removeFile(path: string): boolean {
    const isFree = !this.files.get(path)!.inner?.size;
    if (isFree) this.files.delete(path);
    else this.left.add(path);
    return isFree;
  }

  #noteMerged({ above, layer }: { above: string; layer: string }): void {
    const looseLayers = this.metadata.looseLayers?.map(
      (loose): LooseLayer =>
        loose.path === layer && loose.merging === above ? { ...loose, stage: 'merged' } : loose,
    );
    this.metadata = { ...this.metadata, ...(looseLayers ? { looseLayers } : {}) };
  }

  /** The guest is stopped or started. */
  turn(): void {
    this.running = !this.running;
    this.jobs.clear();
    this.metadata = lastingMetadata(this.metadata);
  }

  /** Nobody goes on with a deletion: its jobs are ended, and that is noted. */
  stop(): void {
    const above = [...this.jobs.values()].map(job => job.above);
    const looseLayers = this.metadata.looseLayers?.map(
      (loose): LooseLayer =>
        above.includes(loose.merging ?? '') && loose.stage === 'live' ? { ...loose, stage: 'begun' } : loose,
    );
    this.metadata = { ...this.metadata, ...(looseLayers ? { looseLayers } : {}) };
    this.jobs.clear();
  }

  #rename({ above, layer }: { above: string; layer: string }): void {
    for (const state of this.states)
      for (const [target, path] of Object.entries(state.frozen))
        if (path === above) state.frozen[target] = layer;
  }

  #forget(name: string): void {
    expect(this.states.some(({ parent }) => parent === name)).toBe(false);
    const gone = this.states.find(state => state.name === name)!;
    this.states = this.states.filter(state => state !== gone);
    const parent = this.states.find(state => state.name === gone.parent);
    if (gone.current && parent) parent.current = true;
  }

  #merge(above: string, layer: string, isWhole: boolean): void {
    const [from, to] = [this.files.get(above)!, this.files.get(layer)!];
    expect(from.backing).toBe(layer);
    for (const [block, value] of from.blocks) {
      to.blocks.set(block, value);
      if (!isWhole) return;
    }
    to.size = Math.max(to.size, from.size);
  }

  #move(readers: string[], above: string, layer: string, isWhole: boolean): void {
    for (const reader of readers) {
      this.files.get(reader)!.backing = layer;
      if (!isWhole) return;
    }
    for (const [target, top] of this.tops) if (top === above) this.tops.set(target, layer);
  }

  /** A running job gets on: what was cut off before is merged from the start. */
  #proceed(target: string): void {
    const job = this.jobs.get(target)!;
    this.#merge(job.above, job.layer, true);
    if (job.active) {
      job.ready = true;
      return;
    }
    // QEMU moves what is in the running chain, and nothing else
    for (const [, top] of this.tops)
      for (let at: string | null = top; at !== null; at = this.files.get(at)!.backing)
        if (this.files.get(at)!.backing === job.above) this.files.get(at)!.backing = job.layer;
    this.jobs.delete(target);
  }

  /** What everything reads, the states of that name left out. */
  reading(without: string | null = null): Record<string, string> {
    const found: Record<string, string> = {};
    for (const [target, top] of this.tops) found[`now ${target}`] = this.content(top);
    for (const path of this.detached) found[`detached ${path}`] = this.content(path);
    for (const { name, overlays, frozen, internalDisks } of this.states)
      if (name !== without)
        for (const target of [...Object.keys(overlays), ...internalDisks])
          found[`${name} ${target}`] = this.content(frozen[target]!, overlays[target] ? undefined : name);
    return found;
  }
}

const NOW = new Date(0);

/** @param mayStop it may be given up half-way */
function remove(
  node: FakeNode,
  name: string | null,
  random: (below: number) => number,
  mayStop = false,
): void {
  const before = node.reading(name);
  node.left.clear();
  let isCrashed = false;
  for (let steps = 0; ; steps++) {
    expect(steps).toBeLessThan(400);
    const isNamed = !isCrashed || node.states.some(state => state.name === name);
    const goal = { name: isNamed ? name : null, countsAsDeletion: true };
    const step = nextMergeStep(node.picture(), goal, NOW);
    if (step.do === 'done') {
      // of a disk that is detached only its user knows what was to come back
      const gone = (step.left ?? []).filter(text => text.includes('is not there'));
      expect(gone.filter(text => !node.detached.has(text.split(' ')[0]!))).toEqual([]);
      break;
    }
    const isWhole = random(5) > 0;
    node.act(step, isWhole);
    expect({ step, reading: node.reading(name) }).toEqual({ step, reading: before });
    if (!isWhole) {
      isCrashed = true;
      if (mayStop && step.do !== 'pivot' && random(3) === 0) {
        node.stop();
        return;
      }
      // the guest may have been stopped or started while nobody looked; its jobs die with it
      if (random(3) === 0) {
        node.turn();
        if (step.do === 'pivot') node.isUnsure = true;
      }
    }
  }
  expect(node.states.some(state => state.name === name)).toBe(false);
}

function live(node: FakeNode, random: (below: number) => number, steps: number): void {
  const pick = <T>(items: T[]): T | undefined => items[random(items.length || 1)];
  for (let step = 0; step < steps; step++) {
    const target = pick([...node.tops.keys()]);
    const state = pick(node.states);
    const top = target === undefined ? undefined : node.files.get(node.tops.get(target)!)!;
    switch (random(12)) {
      case 0:
      case 1:
        node.create(`s${step}`);
        break;
      case 2:
      case 3:
        if (state && removalRefusal(node.picture(), state) === null) remove(node, state.name, random, true);
        break;
      case 4:
        if (state && revertRefusal(node.picture(), state) === null) revert(node, state);
        break;
      case 5:
        if (node.tops.size < 3) node.add(`v${'abcdefghij'[step % 10]}`);
        break;
      case 6:
        if (target && node.tops.size > 1) {
          node.detached.add(node.tops.get(target)!);
          node.tops.delete(target);
        }
        break;
      case 7:
        if (top) top.size += 1;
        break;
      case 8:
        node.turn();
        break;
      case 9:
        if (node.jobs.size === 0) node.createInner(`s${step}`);
        break;
      default:
        top?.blocks.set(random(10), step + 1);
    }
    if (top && random(2)) top.blocks.set(random(10), step + 1);
  }
}

function revert(node: FakeNode, state: SavedState): void {
  const others = Object.entries(node.reading()).filter(([what]) => !what.startsWith('now '));
  node.revert(state);
  const after = node.reading();
  expect(after).toMatchObject(Object.fromEntries(others));
  for (const target of [...Object.keys(state.overlays), ...state.internalDisks])
    expect(after[`now ${target}`]).toBe(after[`${state.name} ${target}`]);
}

describe('random histories', () => {
  test.each(Array.from({ length: 150 }, (_none, seed) => seed))('seed %i', seed => {
    const random = randomOf(seed + 1);
    const node = new FakeNode();
    node.add('vda');
    node.add('vdb');
    live(node, random, 60);
    for (const name of node.states.map(state => state.name)) remove(node, name, random);
    remove(node, null, random);
    // nobody has a layer that nobody uses
    const used = [...node.tops.values(), ...node.detached].flatMap(top => filesFrom(node.picture(), top));
    const goal = { name: null, countsAsDeletion: true };
    const { left = [] } = nextMergeStep(node.picture(), goal, NOW) as { left?: string[] };
    const layers = [...node.files]
      .filter(([, file]) => file.backing !== null)
      .map(([path]) => path)
      .filter(path => !left.some(text => text.startsWith(`${path} (`)));
    if (!node.isUnsure) expect(layers.filter(path => !used.includes(path))).toEqual([]);
    // each disk is one file again, but for what detached disks stand on
    for (const top of node.tops.values()) {
      const below = node.files.get(top)!.backing;
      const readers = [...node.files.values()].filter(file => file.backing === below).length;
      if (below !== null) expect(readers).toBeGreaterThan(1);
    }
  });
});
