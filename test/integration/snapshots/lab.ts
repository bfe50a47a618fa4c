/** A guest whose disks the tests write to by themselves, block by block, running or off, and whose states they compare. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { SavedState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import {
  CreateSnapshotRequest,
  RemoveSnapshotRequest,
  RevertSnapshotRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { newId } from '@virtkeep/shared/ids';
import { readLayers } from '../../../agent/src/disks/index.ts';
import { loadStates, savedStateId } from '../../../agent/src/snapshots/index.ts';
import { createSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/create.ts';
import { removeSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/remove.ts';
import { revertSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/revert.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { WorkflowLab } from '../backup/lab.ts';

export const BLOCK = 65_536;
const BLOCKS = 24;

export class SnapshotLab {
  readonly lab: WorkflowLab;
  #marks = 0;
  readonly #uuids = new WeakMap<Guest, string>();

  private constructor(lab: WorkflowLab) {
    this.lab = lab;
  }

  /** @param dir see `WorkflowLab.start` */
  static async start(dir?: string): Promise<SnapshotLab> {
    return new SnapshotLab(await WorkflowLab.start(dir));
  }

  stop(): Promise<void> {
    return this.lab.stop();
  }

  get world() {
    return this.lab.world;
  }

  get libvirt() {
    return this.lab.libvirt;
  }

  /** Names of the files of the first pool. */
  files(): string[] {
    return this.lab.files(0);
  }

  /** A guest's uuid, which stays: libvirt is asked once. */
  async uuid(guest: Guest): Promise<string> {
    const known = this.#uuids.get(guest) ?? (await guest.uuid());
    this.#uuids.set(guest, known);
    return known;
  }

  /** Makes a state through the workflow. @throws the operation's error */
  async create(guest: Guest, name: string, options: Partial<CreateSnapshotRequest> = {}) {
    const domainId = await this.uuid(guest);
    const request = CreateSnapshotRequest.fromPartial({ domainId, name, ...options });
    const workflow = createSnapshotWorkflow(this.lab.dependencies, request);
    const operation = await this.lab.run('create_snapshot', workflow, [domainId]);
    const { snapshot } = JSON.parse(operation.resultJson) as { snapshot: unknown };
    return { snapshot: SavedState.fromJSON(snapshot), warnings: operation.warnings };
  }

  async remove(guest: Guest, name: string): Promise<void> {
    await this.removeById(guest, await this.#idOf(guest, name));
  }

  async removeById(guest: Guest, snapshotId: string): Promise<void> {
    const domainId = await this.uuid(guest);
    const request = RemoveSnapshotRequest.fromPartial({ domainId, snapshotId });
    await this.lab.run('remove_snapshot', removeSnapshotWorkflow(this.lab.dependencies, request), [domainId]);
  }

  async revert(guest: Guest, name: string): Promise<unknown> {
    const domainId = await this.uuid(guest);
    const snapshotId = await this.#idOf(guest, name);
    const request = RevertSnapshotRequest.fromPartial({ domainId, snapshotId });
    const workflow = revertSnapshotWorkflow(this.lab.dependencies, request);
    return JSON.parse((await this.lab.run('revert_snapshot', workflow, [domainId])).resultJson);
  }

  /** Files that a state keeps. */
  async frozenFiles(guest: Guest, name: string): Promise<string[]> {
    const state = await this.#state(guest, name);
    return Object.keys(state.overlays).map(target => state.frozen[target]!);
  }

  async #state(guest: Guest, name: string) {
    const states = await loadStates(this.libvirt.domain(await this.uuid(guest)));
    return states.find(state => state.name === name)!;
  }

  async #idOf(guest: Guest, name: string): Promise<string> {
    return savedStateId(await this.uuid(guest), await this.#state(guest, name));
  }

  /** A disk without file system in the first pool: the guest leaves it alone. */
  plainDisk(format: 'qcow2' | 'raw' = 'qcow2'): Promise<string> {
    const path = join(this.world.node.pool(0).path, `${newId()}.${format}`);
    return makePlainDisk(path, { sizeBytes: BLOCKS * BLOCK, dataBytes: 4 * BLOCK, format });
  }

  /** Defines a guest with such disks; it is off. */
  async plainGuest(formats: ('qcow2' | 'raw')[], options: object = {}): Promise<Guest> {
    const disks = [];
    for (const format of formats) disks.push({ path: await this.plainDisk(format), format });
    return this.world.defineTiny({ disks, idle: true, ...options });
  }

  /** Writes one block that no other has the content of; in a running guest through QEMU, as the guest itself would. */
  async write(guest: Guest, target: string, block: number): Promise<void> {
    this.#marks = (this.#marks % 250) + 1;
    await this.#io(guest, target, `write -P ${this.#marks} ${block * BLOCK} ${BLOCK}`);
  }

  async #io(guest: Guest, target: string, command: string): Promise<void> {
    const xml = await guest.xml();
    if (!isRunning(xml)) {
      const path = sourcesOf(xml)[target]!;
      const { format } = (await readLayers(path, formatOf(path)))[0]!;
      await run(['qemu-io', '-f', format, '-c', command, path]);
      return;
    }
    const device = deviceOf(xml, target);
    // one virsh for both
    const lines = [command, 'flush'].map(
      line => `qemu-monitor-command ${guest.name} --hmp 'qemu-io -d ${device} "${line}"'`,
    );
    await this.world.node.virsh(lines.join('; '));
  }

  /** Targets of the disks that have a file. */
  async targets(guest: Guest): Promise<string[]> {
    return Object.keys(sourcesOf(await guest.xml()));
  }

  /** Hash of what the guest would read from each disk now. */
  async contents(guest: Guest): Promise<Record<string, string>> {
    const found: Record<string, string> = {};
    for (const [target, path] of Object.entries(sourcesOf(await guest.xml())))
      found[target] = await this.hash(path, formatOf(path));
    return found;
  }

  /** Hash of what each saved state keeps of each disk. */
  async statesContents(guest: Guest): Promise<Record<string, Record<string, string>>> {
    const found: Record<string, Record<string, string>> = {};
    for (const { name, overlays, frozen, frozenFormats } of await loadStates(
      this.libvirt.domain(await this.uuid(guest)),
    )) {
      found[name] = {};
      for (const target of Object.keys(overlays))
        found[name][target] = await this.hash(frozen[target]!, frozenFormats![target]!);
    }
    return found;
  }

  /** Hash of an image's content with all that lies below it. */
  async hash(path: string, format: string): Promise<string> {
    const raw = join(this.world.dir, 'content.raw');
    await run(['qemu-img', 'convert', '-U', '-f', format, '-O', 'raw', path, raw]);
    return createHash('sha256').update(readFileSync(raw)).digest('hex').slice(0, 12);
  }

  async #tops(xml: string): Promise<Set<string>> {
    const tops = new Set(Object.values(sourcesOf(xml)));
    const states = await loadStates(this.libvirt.domain(uuidOf(xml)));
    for (const { frozen, overlays } of states)
      for (const target of Object.keys(overlays)) tops.add(frozen[target]!);
    return tops;
  }

  /** Names of the files that the domain and its states need. */
  async usedFiles(guest: Guest): Promise<string[]> {
    const found: string[] = [];
    const xml = await guest.xml();
    for (const top of await this.#tops(xml))
      found.push(...(await readLayers(top, formatOf(top))).map(({ path }) => basename(path)));
    for (const { memoryPath } of await loadStates(this.libvirt.domain(uuidOf(xml))))
      if (memoryPath) found.push(basename(memoryPath));
    return found;
  }

  /**
   * Every layer of the domain and of its states is a sound image.
   * @param canLeak power was lost: QEMU counts a cluster as used before anything refers to it, so that one may be counted for ever
   */
  async check(guest: Guest, canLeak = false): Promise<void> {
    const xml = await guest.xml();
    const running = isRunning(xml);
    const seen = new Set<string>();
    for (const top of await this.#tops(xml)) {
      for (const { path, format } of await readLayers(top, formatOf(top))) {
        if (seen.has(path)) continue; // states share what lies at the bottom
        seen.add(path);
        if (!existsSync(path)) throw new Error(`${path} is missing`);
        if (format === 'qcow2')
          await run(['qemu-img', 'check', ...(running ? ['-U'] : []), '-q', '-f', 'qcow2', path]).catch(
            error => {
              if (!canLeak || error.exitCode !== LEAKS_ALONE) throw error;
            },
          );
      }
    }
  }
}

/** The code of `qemu-img check` for clusters that are counted and not used: they cost space and harm nothing. */
const LEAKS_ALONE = 3;

/** What a definition says: it is one program's answer in place of one for each question. */
const isRunning = (xml: string) => /<domain [^>]*\bid='/.test(xml);
const uuidOf = (xml: string) => /<uuid>(.*?)<\/uuid>/.exec(xml)![1]!;

/** Paths of the disks, by target. What lies below a disk, or mirrors it, comes after its own source. */
function sourcesOf(xml: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const disk of diskElements(xml)) {
    const path = /<source (?:file|dev)='([^']+)'/.exec(disk)?.[1];
    if (path !== undefined) found[/<target dev='([^']+)'/.exec(disk)![1]!] = path;
  }
  return found;
}

function deviceOf(xml: string, target: string): string {
  const disk = diskElements(xml).find(text => text.includes(`<target dev='${target}'`))!;
  return `/machine/peripheral/${/<alias name='([^']+)'/.exec(disk)![1]}/virtio-backend`;
}

const diskElements = (xml: string) => [...xml.matchAll(/<disk .*?<\/disk>/gs)].map(([text]) => text);

const formatOf = (path: string) => (path.endsWith('.raw') ? 'raw' : 'qcow2');
