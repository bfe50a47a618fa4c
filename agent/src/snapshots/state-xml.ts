/** Saved states and their disks in XML: reading a state, asking for one, seeing and changing the tops of disks. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import {
  attr,
  child,
  children,
  childrenAt,
  ensureChild,
  parseSnapshot,
  parseXml,
  pathAttr,
  serializeXml,
} from '../domain-xml/index.ts';
import type { SavedState } from './chain.ts';

/**
 * Reads a state's XML as libvirt gives it.
 * @throws VirtkeepError xml_invalid
 */
export function savedStateOf(xml: string, current: boolean): SavedState {
  const config = parseSnapshot(xml);
  const external = config.disks.filter(disk => disk.mode === 'external' && disk.path !== undefined);
  const sources = (config.domain?.disks ?? []).flatMap(disk =>
    disk.path === undefined ? [] : [[disk.targetDev, disk.path] as const],
  );
  return {
    name: config.name,
    parent: config.parent ?? null,
    current,
    description: config.description,
    createdUnix: config.creationTime,
    ...(config.domain?.metadata.statesDeleted ? { deletedBefore: config.domain.metadata.statesDeleted } : {}),
    memory: config.memory.mode,
    memoryPath: config.memory.path ?? null,
    overlays: Object.fromEntries(external.map(disk => [disk.name, disk.path!])),
    frozen: Object.fromEntries(sources),
    frozenFormats: Object.fromEntries(
      (config.domain?.disks ?? []).flatMap(disk => (disk.format ? [[disk.targetDev, disk.format]] : [])),
    ),
    internalDisks: config.disks.filter(disk => disk.mode === 'internal').map(disk => disk.name),
    deleting: config.deleteInProgress,
    xml,
  };
}

/** The disks of the definition in a state; none without one. */
export function disksOfState(stateXml: string): Map<string, DiskState> {
  const { root } = parseXml(stateXml, 'domainsnapshot', 'a saved state');
  const domain = child(root, 'domain');
  return domain ? diskStates(serializeXml(domain)) : new Map();
}

export interface StateRequest {
  name: string;
  description: string;
  /** Overlay per disk; null leaves the disk out of the state. */
  disks: { targetDev: string; overlayPath: string | null }[];
  /** File for the memory; null for a state of the disks alone. */
  memoryPath: string | null;
}

/** The request for an external state. Every disk has its entry, since libvirt's defaults would take in others. */
export function stateRequestXml(request: StateRequest): string {
  const { document, root } = parseXml('<domainsnapshot/>', 'domainsnapshot', 'a new saved state');
  const add = (parent: typeof root, name: string, attributes: Record<string, string>, content?: string) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (content !== undefined) element.appendChild(document.createTextNode(content));
    parent.appendChild(element);
    return element;
  };
  add(root, 'name', {}, request.name);
  add(root, 'description', {}, request.description);
  if (request.memoryPath === null) add(root, 'memory', { snapshot: 'no' });
  else add(root, 'memory', { snapshot: 'external', file: request.memoryPath });
  const disks = add(root, 'disks', {});
  for (const { targetDev, overlayPath } of request.disks) {
    if (overlayPath === null) {
      add(disks, 'disk', { name: targetDev, snapshot: 'no' });
      continue;
    }
    const disk = add(disks, 'disk', { name: targetDev, snapshot: 'external', type: 'file' });
    add(disk, 'driver', { type: 'qcow2' });
    add(disk, 'source', { file: overlayPath });
  }
  return serializeXml(root);
}

/** What a disk given as a volume names instead of a file. */
export interface VolumeName {
  pool: string;
  volume: string;
}

export interface DiskState {
  /** The top file; null also for a volume. */
  sourcePath: string | null;
  /** Its path as it stands there. */
  spelling: string | null;
  /** By which libvirt tells one place from another: its kind, and path or volume as they stand there. */
  location: string;
  volume?: VolumeName;
  /** Format that libvirt opens the top file with. */
  driverType: string | null;
  /** A mirror by block job, an active commit or a copy, that is running or waits for its pivot; and where it goes. */
  mirror: { job: string; ready: boolean; path: string | null; volume?: VolumeName } | null;
}

/** Per target what a domain XML says of its disks' tops. */
export function diskStates(domainXml: string): Map<string, DiskState> {
  const { root } = parseXml(domainXml, 'domain', 'a domain');
  const found = new Map<string, DiskState>();
  for (const disk of childrenAt(root, 'devices/disk')) {
    const target = attr(child(disk, 'target'), 'dev');
    if (!target) continue;
    const source = child(disk, 'source');
    const mirror = child(disk, 'mirror');
    found.set(target, {
      sourcePath: fileOf(source) ?? null,
      spelling: attr(source, 'file') ?? attr(source, 'dev') ?? null,
      location: locationOf(disk, source),
      ...volumeOf(source),
      driverType: attr(child(disk, 'driver'), 'type') ?? null,
      mirror: mirror ? mirrorOf(mirror) : null,
    });
  }
  return found;
}

function mirrorOf(mirror: NonNullable<ReturnType<typeof child>>): NonNullable<DiskState['mirror']> {
  const source = child(mirror, 'source');
  return {
    job: attr(mirror, 'job') ?? '',
    ready: attr(mirror, 'ready') === 'yes',
    path: fileOf(source) ?? null,
    ...volumeOf(source),
  };
}

function locationOf(disk: NonNullable<ReturnType<typeof child>>, source: ReturnType<typeof child>): string {
  const named = ['file', 'dev', 'pool', 'volume'].map(name => attr(source, name));
  return [attr(disk, 'type'), ...named].filter(text => text !== undefined).join(' ');
}

/** The file or device of a source. */
const fileOf = (source: ReturnType<typeof child>): string | undefined =>
  pathAttr(source, 'file') ?? pathAttr(source, 'dev');

function volumeOf(source: ReturnType<typeof child>): { volume?: VolumeName } {
  const [pool, volume] = [attr(source, 'pool'), attr(source, 'volume')];
  return pool && volume ? { volume: { pool, volume } } : {};
}

/** Source of a disk in XML. */
export interface DiskSource {
  path: string;
  format: string;
  /** A block device. */
  block: boolean;
}

/**
 * A state's XML that keeps another file in place of one. The recorded chains go away, as in `withSources`.
 * @throws VirtkeepError xml_invalid
 */
export function withKeptFile(stateXml: string, from: string, to: DiskSource): string {
  const { root } = parseXml(stateXml, 'domainsnapshot', 'the saved state to be changed');
  for (const domain of ['domain', 'inactiveDomain'].flatMap(name => child(root, name) ?? [])) {
    for (const disk of childrenAt(domain, 'devices/disk')) {
      const source = child(disk, 'source');
      for (const backing of children(disk, 'backingStore')) disk.removeChild(backing);
      if (fileOf(source) === from) setSource(disk, to);
    }
  }
  return serializeXml(root);
}

/** A state's XML without the chains that libvirt recorded: it would look for their files as they are named there. */
export function withoutChains(stateXml: string): string {
  const { root } = parseXml(stateXml, 'domainsnapshot', 'the saved state to be changed');
  for (const domain of ['domain', 'inactiveDomain'].flatMap(name => child(root, name) ?? []))
    for (const disk of childrenAt(domain, 'devices/disk'))
      for (const backing of children(disk, 'backingStore')) disk.removeChild(backing);
  return serializeXml(root);
}

/**
 * The definitions inside a state, as texts of domains: the running one (or the only one), and the persistent one beside it.
 * @throws VirtkeepError xml_invalid when there is none
 */
export function domainsOfState(stateXml: string): { domain: string; inactive: string | null } {
  const { root } = parseXml(stateXml, 'domainsnapshot', 'the saved state');
  const [domain, inactive] = [child(root, 'domain'), child(root, 'inactiveDomain')];
  if (!domain)
    throw new VirtkeepError('xml_invalid', { subject: 'the saved state', reason: 'it holds no domain' });
  const renamed = inactive && serializeXml(inactive).replace(/^<inactiveDomain/, '<domain');
  return {
    domain: serializeXml(domain),
    inactive: renamed?.replace(/<\/inactiveDomain>\s*$/, '</domain>') ?? null,
  };
}

/** A state's XML with other overlays, per target: those that the disks got when the domain was reverted to it. */
export function withOverlays(stateXml: string, overlays: Record<string, string>): string {
  const { root } = parseXml(stateXml, 'domainsnapshot', 'the saved state to be changed');
  for (const disk of childrenAt(root, 'disks/disk')) {
    const path = overlays[attr(disk, 'name') ?? ''];
    // who has it already keeps its spelling
    if (path === undefined || path === fileOf(child(disk, 'source'))) continue;
    disk.setAttribute('type', 'file');
    const source = ensureChild(disk, 'source');
    source.removeAttribute('dev');
    source.setAttribute('file', path);
  }
  return serializeXml(root);
}

/**
 * An inactive domain XML with the sources of some disks replaced. The recorded backing chains of those disks go away,
 * because a start fails when they do not match the files (measured).
 */
export function withSources(domainXml: string, sources: Record<string, DiskSource>): string {
  const { root } = parseXml(domainXml, 'domain', 'a domain');
  for (const disk of childrenAt(root, 'devices/disk')) {
    const source = sources[attr(child(disk, 'target'), 'dev') ?? ''];
    if (!source) continue;
    for (const backing of children(disk, 'backingStore')) disk.removeChild(backing);
    setSource(disk, source);
  }
  return serializeXml(root);
}

function setSource(disk: Parameters<typeof child>[0], { path, format, block }: DiskSource): void {
  const source = ensureChild(disk, 'source', child(disk, 'target'));
  for (const name of ['file', 'dev', 'pool', 'volume', 'mode', 'index']) source.removeAttribute(name);
  source.setAttribute(block ? 'dev' : 'file', path);
  disk.setAttribute('type', block ? 'block' : 'file');
  child(disk, 'driver')?.setAttribute('type', format);
}
