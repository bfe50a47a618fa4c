/**
 * libvirt in memory, over real images: what the workflows and their undo ask of it, and no more. It stands below the binding's own
 * classes, so all calls pass one place, where a test can make them fail or never return.
 *
 * A guest that runs writes to the file that its live definition names; merges and pulls of a running one end at once.
 */
import { EventEmitter } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { ErrorCode, Libvirt } from '@virtkeep/node-libvirt';
import { readLayers, rebaseUnsafe } from '../../agent/src/disks/index.ts';
import {
  attr,
  child,
  childrenAt,
  parseDomain,
  parseSnapshot,
  parseXml,
  serializeXml,
} from '../../agent/src/domain-xml/index.ts';
import { diskStates, withSources } from '../../agent/src/snapshots/state-xml.ts';
import { run } from '../lab/run.ts';
import {
  definitionOf,
  type Machine,
  plugDisk,
  refuse,
  requireActive,
  withElement,
  withoutChain,
} from './scripted-machine.ts';

type Args = readonly unknown[];

/** How points in the middle of making a state begin. */
const INSIDE = 'snapshot.';

export class ScriptedLibvirt {
  readonly machines = new Map<string, Machine>();
  readonly libvirt: Libvirt;
  /** Told before and after each call; may reject, or never resolve. */
  reach: (point: string) => Promise<void> = async () => {};
  /** The same for a point inside of a call. */
  reachInside: (point: string) => Promise<void> = point => this.reach(point);
  /** What QEMU does for a pull of the disk with that top. */
  pull: (topPath: string) => Promise<void> = async () => {};
  capabilities = '<capabilities/>';
  /** Calls that are being answered, by their names. */
  readonly #atWork = new Map<Promise<unknown>, string>();
  #clock = 1_700_000_000;

  constructor() {
    const call = async (name: string, target: readonly string[], args: Args): Promise<unknown> => {
      await this.reach(`${name}.before`);
      const answer = this.#answer(name, target, args);
      this.#atWork.set(answer, name);
      const result = await answer.finally(() => this.#atWork.delete(answer));
      await this.reach(`${name}.after`);
      return result;
    };
    const connection = { call, uri: 'test:///scripted', connected: true, close: async () => {} };
    this.libvirt = new Libvirt(connection as never, new EventEmitter() as never);
  }

  /**
   * When the agent was killed: what it had asked for is done to its end, but for a call that was cut off in its middle.
   * @param killedAt where it was killed
   */
  async finish(killedAt: string): Promise<void> {
    const isCut = (name: string) => killedAt.startsWith(INSIDE) && name === 'virDomainSnapshotCreateXML';
    const asked = [...this.#atWork].filter(([, name]) => !isCut(name)).map(([answer]) => answer);
    this.#atWork.clear();
    await Promise.allSettled(asked);
  }

  add(xml: string, running: boolean): Machine {
    const { uuid } = this.#define(xml);
    const machine = this.machines.get(uuid)!;
    if (running) machine.live = xml;
    return machine;
  }

  #machine(uuid: string): Machine {
    const found = this.machines.get(uuid);
    if (!found) throw refuse(ErrorCode.NO_DOMAIN, 'Domain not found');
    return found;
  }

  #define(xml: string): { uuid: string; name: string } {
    const { uuid, name } = parseDomain(xml);
    const known = this.machines.get(uuid);
    if (known) known.config = xml;
    else
      this.machines.set(uuid, {
        ...{ uuid, name, config: xml, live: null, saved: null, states: new Map(), current: null },
        ...{ suspended: false, frozen: false, keepsDisks: false, mirrors: new Set() },
      });
    return { uuid, name };
  }

  /** Asked of libvirt itself. */
  async #answer(name: string, [uuid, state]: readonly string[], args: Args): Promise<unknown> {
    switch (name) {
      case 'virConnectGetCapabilities':
        return this.capabilities;
      case 'virConnectListAllDomains':
        return [...this.machines.values()].map(({ uuid: id, name: title }) => ({ uuid: id, name: title }));
      case 'virDomainLookupByUUIDString': {
        const { uuid: id, name: title } = this.#machine(args[0] as string);
        return { uuid: id, name: title };
      }
      case 'virDomainDefineXMLFlags':
        return this.#define(args[0] as string);
      case 'virDomainRestoreFlags':
        return this.#resume(args as [string, string]);
      case 'virConnectListAllNetworks':
      case 'virConnectListAllStoragePools':
        return [];
    }
    const machine = this.#machine(uuid!);
    if (name.startsWith('virDomainSnapshot') && state !== undefined)
      return this.#answerState(machine, name, state, args);
    return this.#answerDomain(machine, name, args);
  }

  async #answerDomain(machine: Machine, name: string, args: Args): Promise<unknown> {
    switch (name) {
      case 'virDomainGetXMLDesc':
        return (args[0] as number) & 2 ? definitionOf(machine) : this.#liveXml(machine);
      case 'virDomainIsActive':
        return machine.live !== null;
      case 'virDomainIsPersistent':
        return machine.config !== null;
      case 'virDomainGetState':
        return [machine.live === null ? 5 : machine.suspended ? 3 : 1, 0];
      case 'virDomainCreateWithFlags':
        return this.start(machine);
      case 'virDomainDestroyFlags':
        requireActive(machine);
        return this.#stop(machine);
      case 'virDomainUndefineFlags':
        if (machine.live === null) this.machines.delete(machine.uuid);
        machine.config = null;
        return undefined;
      case 'virDomainSuspend':
      case 'virDomainResume':
        requireActive(machine);
        machine.suspended = name === 'virDomainSuspend';
        return undefined;
      case 'virDomainRename':
        return this.#rename(machine, args[0] as string);
      case 'virDomainHasManagedSaveImage':
        return machine.saved !== null;
      case 'virDomainManagedSaveGetXMLDesc':
        return machine.saved;
      case 'virDomainSetMetadata':
        return this.#setMetadata(machine, args[1] as string | null, args[4] as number);
      case 'virDomainAttachDeviceFlags':
      case 'virDomainDetachDeviceFlags':
        return plugDisk(machine, name === 'virDomainAttachDeviceFlags', args as [string, number]);
      case 'virDomainSetTime':
      case 'virDomainAgentSetResponseTimeout':
        return undefined;
      case 'virDomainQemuAgentCommand':
        return this.#agent(machine, args[0] as string);
      case 'virDomainFSFreeze':
      case 'virDomainFSThaw':
        requireActive(machine);
        machine.frozen = name === 'virDomainFSFreeze';
        return 1;
      case 'virDomainGetJobStats':
        return [0, {}];
      default:
        return name.startsWith('virDomainBlock') || name === 'virDomainGetBlockJobInfo'
          ? this.#answerDisk(machine, name, args)
          : this.#answerStates(machine, name, args);
    }
  }

  #rename(machine: Machine, name: string): void {
    if (machine.live !== null) throw refuse(ErrorCode.OPERATION_INVALID, 'it runs');
    if ([...this.machines.values()].some(other => other.name === name))
      throw refuse(ErrorCode.OPERATION_INVALID, `domain with name '${name}' already exists`);
    machine.name = name;
    machine.config = definitionOf(machine).replace(/<name>[^<]*<\/name>/, `<name>${name}</name>`);
  }

  #agent(machine: Machine, command: string): string {
    requireActive(machine);
    const { execute } = JSON.parse(command) as { execute: string };
    const value = execute === 'guest-fsfreeze-status' ? (machine.frozen ? 'frozen' : 'thawed') : {};
    return JSON.stringify({ return: value });
  }

  #setMetadata(machine: Machine, element: string | null, flags: number): void {
    const sides = flags === 0 ? 3 : flags;
    if (sides & 1 && machine.live !== null) machine.live = withElement(machine.live, element);
    if (sides & 2 && machine.config !== null) machine.config = withElement(machine.config, element);
  }

  /** Of a running one with the mirrors of its active commits, and the files that they go into. */
  async #liveXml(machine: Machine): Promise<string> {
    if (machine.live === null || machine.mirrors.size === 0) return machine.live ?? definitionOf(machine);
    const tops = diskStates(machine.live);
    const { root } = parseXml(machine.live, 'domain', 'a running domain');
    for (const disk of childrenAt(root, 'devices/disk')) {
      const target = attr(child(disk, 'target'), 'dev') ?? '';
      if (!machine.mirrors.has(target)) continue;
      const below = (await readLayers(tops.get(target)!.sourcePath!, 'qcow2'))[1]!;
      const mirror = root.ownerDocument!.createElement('mirror');
      for (const [name, value] of Object.entries({ type: 'file', job: 'active-commit', ready: 'yes' }))
        mirror.setAttribute(name, value);
      const source = root.ownerDocument!.createElement('source');
      source.setAttribute('file', below.path);
      mirror.appendChild(source);
      disk.appendChild(mirror);
    }
    return serializeXml(root);
  }

  /** Starts it as QEMU does: refused when a file of its disks is not there. */
  async start(machine: Machine, xml: string | null = machine.config): Promise<void> {
    if (machine.live !== null) throw refuse(ErrorCode.OPERATION_INVALID, 'it runs already');
    for (const { sourcePath } of diskStates(xml!).values())
      if (!existsSync(sourcePath!)) throw refuse(ErrorCode.OPERATION_FAILED, `${sourcePath} is not there`);
    machine.live = xml;
  }

  /** Goes on from a memory file, with the definition that is given. */
  async #resume([file, xml]: [string, string]): Promise<void> {
    if (!existsSync(file)) throw refuse(ErrorCode.OPERATION_FAILED, `${file} is not there`);
    const machine = this.#machine(parseDomain(xml).uuid);
    await this.start(machine, xml);
  }

  powerOff(machine: Machine): void {
    this.#stop(machine);
  }

  #stop(machine: Machine): void {
    Object.assign(machine, { live: null, suspended: false, frozen: false });
    machine.mirrors.clear();
    if (machine.config === null) this.machines.delete(machine.uuid);
  }

  async #answerDisk(machine: Machine, name: string, args: Args): Promise<unknown> {
    requireActive(machine);
    const target = args[0] as string;
    const top = diskStates(machine.live!).get(target)!.sourcePath!;
    const { mirrors } = machine;
    switch (name) {
      case 'virDomainGetBlockJobInfo':
        return mirrors.has(target) ? { type: 4, bandwidth: 0, cur: 1, end: 1 } : null;
      case 'virDomainBlockCommit': {
        const [, base, above, , flags] = args as [string, string | null, string | null, number, number];
        if (flags & 4) return mirrors.add(target).size;
        return mergeMiddle(top, above!, base!);
      }
      case 'virDomainBlockJobAbort':
        if ((args[1] as number) & 2) await this.#pivot(machine, target, top);
        mirrors.delete(target);
        return undefined;
      case 'virDomainBlockPull':
        await this.pull(top);
        machine.live = withoutChain(machine.live!, target);
        return undefined;
    }
    throw new Error(`the scripted libvirt knows no ${name}`);
  }

  /** The guest goes on with the file below, and so does its next start. */
  async #pivot(machine: Machine, target: string, top: string): Promise<void> {
    const below = (await readLayers(top, 'qcow2'))[1]!;
    await run(['qemu-img', 'commit', '-q', '-d', '-f', 'qcow2', top]);
    const source = { [target]: { path: below.path, format: below.format, block: false } };
    const isDefined = machine.config && diskStates(machine.config).get(target)?.sourcePath === top;
    machine.live = withSources(machine.live!, source);
    if (isDefined) machine.config = withSources(machine.config!, source);
  }

  async #answerStates(machine: Machine, name: string, args: Args): Promise<unknown> {
    const noState = () => refuse(ErrorCode.NO_DOMAIN_SNAPSHOT, 'no such snapshot');
    switch (name) {
      case 'virDomainListAllSnapshots':
        return [...machine.states.keys()];
      case 'virDomainSnapshotLookupByName':
        if (!machine.states.has(args[0] as string)) throw noState();
        return args[0];
      case 'virDomainSnapshotCurrent':
        if (machine.current === null) throw noState();
        return machine.current;
      case 'virDomainSnapshotCreateXML':
        return this.#makeState(machine, args[0] as string, args[1] as number);
    }
    throw new Error(`the scripted libvirt knows no ${name}`);
  }

  async #makeState(machine: Machine, xml: string, flags: number): Promise<string> {
    const { name, disks, memory } = parseSnapshot(xml);
    if (flags & 1) {
      machine.states.set(name, xml);
      if (flags & 2) machine.current = name;
      return name;
    }
    const before = { live: machine.live, config: machine.config! };
    const hasMemory = memory.mode === 'external';
    if (hasMemory) {
      requireActive(machine);
      writeFileSync(memory.path!, 'memory');
      await this.reachInside(`${INSIDE}memory`);
    }
    const sources: Record<string, { path: string; format: string; block: boolean }> = {};
    const present = parseDomain(before.live ?? before.config).disks;
    // a disk that the request does not name gets a layer by default
    const unnamed = present
      .filter(({ targetDev }) => !disks.some(disk => disk.name === targetDev))
      .map(({ targetDev, path }) => {
        const overlay = `${path!.replace(/\.[^./]*$/, '')}.${name}`;
        return { name: targetDev, mode: 'external', path: overlay };
      });
    for (const { name: target, path, mode } of [...disks, ...unnamed]) {
      if (mode !== 'external' || path === undefined) continue;
      const disk = present.find(({ targetDev }) => targetDev === target)!;
      await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-F', disk.format!, '-b', disk.path!, path]);
      sources[target] = { path, format: 'qcow2', block: false };
      await this.reachInside(`${INSIDE}overlay`);
    }
    if (machine.live !== null) machine.live = withSources(machine.live, sources);
    machine.config = withSources(machine.config!, sources);
    const { root } = parseXml(xml, 'domainsnapshot', 'a request');
    const time = `<creationTime>${this.#clock++}</creationTime>`;
    const parent = machine.current === null ? '' : `<parent><name>${machine.current}</name></parent>`;
    const kept = before.live ?? before.config;
    const power = hasMemory ? 'running' : machine.live === null ? 'shutoff' : 'disk-snapshot';
    const rest = `${time}${parent}<state>${power}</state>${kept}`;
    const takenIn = unnamed.map(
      disk => `<disk name='${disk.name}' snapshot='external'><source file='${disk.path}'/></disk>`,
    );
    const whole = serializeXml(root).replace('</disks>', `${takenIn.join('')}</disks>`);
    machine.states.set(name, whole.replace('</domainsnapshot>', `${rest}</domainsnapshot>`));
    machine.current = name;
    return name;
  }

  async #answerState(machine: Machine, name: string, state: string, args: Args): Promise<unknown> {
    const xml = machine.states.get(state);
    if (xml === undefined) throw refuse(ErrorCode.NO_DOMAIN_SNAPSHOT, 'no such snapshot');
    const parentOf = (text: string) => parseSnapshot(text).parent ?? null;
    switch (name) {
      case 'virDomainSnapshotGetXMLDesc':
        return xml;
      case 'virDomainSnapshotIsCurrent':
        return machine.current === state;
      case 'virDomainSnapshotListAllChildren':
        return [...machine.states].filter(([, text]) => parentOf(text) === state).map(([child]) => child);
      case 'virDomainSnapshotDelete':
        if (!((args[0] as number) & 2)) throw refuse(ErrorCode.CONFIG_UNSUPPORTED, 'only metadata');
        machine.states.delete(state);
        if (machine.current === state) machine.current = parentOf(xml);
        return undefined;
    }
    throw new Error(`the scripted libvirt knows no ${name}`);
  }
}

async function mergeMiddle(top: string, above: string, base: string): Promise<void> {
  const chain = await readLayers(top, 'qcow2');
  const reader = chain[chain.findIndex(({ path }) => path === above) - 1]!;
  const below = chain.find(({ path }) => path === base)!;
  await run(['qemu-img', 'commit', '-q', '-d', '-f', 'qcow2', above]);
  const signal = AbortSignal.timeout(60_000);
  await rebaseUnsafe(reader.path, { path: below.path, format: below.format }, { signal });
}
