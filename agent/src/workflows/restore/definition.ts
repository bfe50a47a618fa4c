/** The XML of a restored VM, of its saved states and of its memory, from the archived ones; pure. */
import type { Element } from '@xmldom/xmldom';
import type { Manifest } from '../../archive/index.ts';
import {
  applyIdentity,
  applyImage,
  applyMetadata,
  applyNvram,
  applyPaths,
  applySnapshotEdit,
  applySource,
  attr,
  child,
  children,
  childrenAt,
  type DomainConfig,
  type DomainMetadata,
  dropChains,
  ensureChild,
  type Identity,
  parseDomain,
  parseXml,
  remove,
  type Sanitized,
  type SanitizedTree,
  sanitizeTree,
  serializeXml,
  text,
} from '../../domain-xml/index.ts';
import { parseIncrementTag } from '../../snapshots/index.ts';
import { type GateInput, gateOf } from './gate.ts';
import { type DiskPlacement, formatOf, type Placement } from './placement.ts';
import type { RestoredState } from './states.ts';

export interface DefinitionInput extends GateInput {
  /** The archived definition, without what must not reach this node. */
  xml: string;
  config: DomainConfig;
  manifest: Manifest;
  identity: Identity;
  /** The emulator of the definition does not exist here: libvirt's own choice is taken. */
  otherEmulator: boolean;
  /** The template that a thin clone stands on from now on; null for every other VM. */
  templateId: string | null;
  /** In place of a lost VM: then nothing may go on extending the backups that were made of that one. */
  inPlace: boolean;
}

/**
 * The definition: the archived one with identity, paths and nothing that was not restored. Here as below, the text is read once
 * and written once, however many disks it has: it is somebody else's.
 */
export function restoredDefinition(input: DefinitionInput): Sanitized {
  const { config, identity, placement, nvramPath, attachable } = input;
  const { root } = parseXml(input.xml, 'domain', 'the domain to be restored');
  dropChains(root);
  applyIdentity(root, identity);
  const restored = new Map(
    placement.disks.map(({ disk, layers }) => [
      disk.target,
      { path: layers.at(-1)!.path, format: formatOf(disk) },
    ]),
  );
  for (const { element, target, device } of disksOf(root)) {
    const source = restored.get(target);
    if (source !== undefined) applySource(element, source);
    else if (device === 'cdrom' || device === 'floppy')
      applyImage(element, placement.drives.get(target) ?? null);
    else if (!attachable.has(target)) remove(element);
  }
  if (config.nvram) applyNvram(root, nvramPath);
  if (input.otherEmulator) dropEmulator(root);
  applyMetadata(root, restoredMetadata(config.metadata, input));
  return written(sanitizeTree(root, gateOf(input)));
}

/** The disks and drives of a domain. */
const disksOf = (domain: Element) =>
  childrenAt(domain, 'devices/disk').map(element => ({
    element,
    target: attr(child(element, 'target'), 'dev') ?? '',
    device: attr(element, 'device') ?? 'disk',
  }));

const written = ({ root, leftOut }: SanitizedTree): Sanitized => ({ xml: serializeXml(root), leftOut });

/**
 * What was attached, deleted or half merged was so on the original alone. In its place, the restored VM is as after a
 * revert: no archive of before goes on.
 */
function restoredMetadata(
  { template, templateVersion, parent }: DomainMetadata,
  { inPlace, templateId }: DefinitionInput,
): DomainMetadata {
  return {
    template,
    templateVersion,
    ...(parent ? { parent: { ...parent, id: templateId ?? parent.id } } : {}),
    ...(inPlace ? { statesDeleted: new Date() } : {}),
    attachments: [],
  };
}

function dropEmulator(domain: Element): void {
  const emulator = child(domain, 'devices/emulator');
  if (emulator) remove(emulator);
}

/** Path of the emulator that a definition names, or undefined. */
export function emulatorOf(xml: string): string | undefined {
  return text(parseXml(xml, 'domain', 'the domain to be restored').root, 'devices/emulator');
}

/** Old → new path of every file that a saved state may name. */
export function movedPaths(
  input: DefinitionInput,
  memoryPaths: ReadonlyMap<string, string>,
): Map<string, string> {
  const paths = new Map(memoryPaths);
  for (const placed of input.placement.disks) {
    for (const [index, { formerPath }] of placed.disk.layers.entries())
      if (formerPath !== null) paths.set(formerPath, layerPath(placed, index));
  }
  for (const iso of input.manifest.isos) {
    const path = input.placement.drives.get(iso.target);
    if (path) paths.set(iso.formerPath, path);
  }
  const oldNvram = input.config.nvram?.path;
  if (oldNvram && input.nvramPath) paths.set(oldNvram, input.nvramPath);
  return paths;
}

/** Where the content of a layer of the archive is: its own file, or the one it was merged into. */
function layerPath({ layers, fileOf }: DiskPlacement, index: number): string {
  return (layers[fileOf[index] ?? 0] ?? layers.at(-1)!).path;
}

/**
 * A saved state's XML for the restored VM. Layers that were raw are qcow2 now, so the frozen disks are written anew and
 * not only their paths; disks that did not come back are taken out. What a disk kept is told by the plan: the path in the
 * XML may be that of a file into which later layers were merged.
 * @param paths old → new, memory files included
 * @param memories the files of the saved states' memory
 */
export function restoredState(
  state: RestoredState,
  input: DefinitionInput,
  paths: ReadonlyMap<string, string>,
  memories: Iterable<string>,
): Sanitized {
  const { root } = parseXml(state.xml, 'domainsnapshot', 'the saved state to be restored');
  applySnapshotEdit(root, { identity: input.identity, paths, parent: state.parent });
  const placed = new Map(input.placement.disks.map(disk => [disk.disk.target, disk]));
  for (const name of ['domain', 'inactiveDomain']) {
    const domain = child(root, name);
    if (!domain) continue;
    if (input.otherEmulator) dropEmulator(domain);
    for (const { element, target, device } of disksOf(domain)) {
      if (device !== 'disk') continue;
      const kept = state.frozen.get(target);
      if (kept)
        applySource(element, { path: layerPath(placed.get(kept.disk)!, kept.index), format: 'qcow2' });
      else if (!input.attachable.has(target)) remove(element);
    }
  }
  for (const disk of childrenAt(root, 'disks/disk')) {
    const target = attr(disk, 'name') ?? '';
    if (attr(disk, 'snapshot') !== 'external') continue;
    const kept = state.frozen.get(target);
    if (kept) applyOverlay(disk, layerPath(placed.get(kept.disk)!, kept.index + 1));
    else remove(disk);
  }
  dropTag(root);
  const sanitized = sanitizeTree(root, gateOf(input, memories), 'domainsnapshot');
  dropForeignEntries(sanitized.root);
  return written(sanitized);
}

/** The overlay that a state made on a disk. */
function applyOverlay(disk: Element, path: string): void {
  disk.setAttribute('type', 'file');
  for (const old of children(disk, 'source')) remove(old);
  ensureChild(disk, 'source').setAttribute('file', path);
}

/** A state of a restored VM belongs to no archive: none may be extended from it. */
function dropTag(root: Element): void {
  const description = child(root, 'description');
  const lines = (description?.textContent ?? '').split('\n');
  const kept = lines.filter(line => parseIncrementTag(line.trim()) === null);
  if (description && kept.length < lines.length) description.textContent = kept.join('\n').trim();
}

/** `<disks>` may only name disks of the domain in the same XML. */
function dropForeignEntries(root: Element): void {
  const domain = child(root, 'domain');
  if (!domain) return;
  const targets = new Set(disksOf(domain).map(({ target }) => target));
  for (const disk of childrenAt(root, 'disks/disk')) if (!targets.has(attr(disk, 'name') ?? '')) remove(disk);
}

/**
 * The XML inside a memory file: the devices stay as they were (the memory knows them), files and identity are new.
 * @param diskPaths per target the layer that was current when the memory was saved
 */
export function restoredMemoryXml(
  xml: string,
  input: DefinitionInput,
  diskPaths: ReadonlyMap<string, string>,
  paths: ReadonlyMap<string, string>,
): Sanitized {
  const { root } = parseXml(xml, 'domain', 'a saved memory');
  dropChains(root);
  applyIdentity(root, input.identity);
  for (const { element, target, device } of disksOf(root)) {
    const path = diskPaths.get(target);
    if (path !== undefined && device === 'disk') applySource(element, { path, format: 'qcow2' });
  }
  applyPaths(root, paths);
  if (input.otherEmulator) dropEmulator(root);
  // what the original was about when its memory was saved is not the restored one's business
  applyMetadata(root, restoredMetadata(input.config.metadata, input));
  return written(sanitizeTree(root, gateOf(input)));
}

/** Targets of a memory's disks that did not come back: with them it would use the files of another VM. */
export function foreignDisks(xml: string, input: DefinitionInput): string[] {
  const restored = new Set(input.placement.disks.map(({ disk }) => disk.target));
  return parseDomain(xml, 'a saved memory')
    .disks.filter(disk => disk.device === 'disk' || disk.device === 'lun')
    .map(disk => disk.targetDev)
    .filter(target => !restored.has(target) && !input.attachable.has(target));
}

/** Per target, as it was then, the layer that a saved state keeps. */
export function keptPaths(state: RestoredState, placement: Placement): Map<string, string> {
  const placed = new Map(placement.disks.map(disk => [disk.disk.target, disk]));
  return new Map(
    [...state.frozen].map(([target, { disk, index }]) => [target, layerPath(placed.get(disk)!, index)]),
  );
}

/** Per target the file that the restored VM writes to. */
export function topPaths(placement: Placement): Map<string, string> {
  return new Map(placement.disks.map(({ disk, layers }) => [disk.target, layers.at(-1)!.path]));
}
