/** The XML of a restored VM, of its saved states and of its memory, from the archived ones; pure. */
import type { Manifest } from '../../archive/index.ts';
import { attr, child, children, childrenAt, remove, text } from '../../domain-xml/dom.ts';
import {
  applySource,
  type DomainConfig,
  type DomainMetadata,
  editSnapshot,
  type Identity,
  parseDomain,
  parseXml,
  removeDisk,
  replacePaths,
  serializeXml,
  setCdromSource,
  setDiskSource,
  setIdentity,
  setMetadata,
  setNvram,
  stripBackingStore,
} from '../../domain-xml/index.ts';
import type { Placement } from './placement.ts';

export interface DefinitionInput {
  config: DomainConfig;
  manifest: Manifest;
  identity: Identity;
  placement: Placement;
  /** New file of the UEFI variables; null: libvirt makes it from the template. */
  nvramPath: string | null;
  /** LUNs and disks of other storage that are there and used by nobody. */
  attachable: ReadonlySet<string>;
  /** The emulator of the definition does not exist here: libvirt's own choice is taken. */
  otherEmulator: boolean;
}

/** The definition: the archived one with identity, paths and nothing that was not restored. */
export function restoredDefinition(xml: string, input: DefinitionInput): string {
  const { config, identity, placement, nvramPath, attachable } = input;
  let next = setIdentity(stripBackingStore(xml), identity);
  const restored = new Map(placement.disks.map(({ disk, layers }) => [disk.target, layers.at(-1)!.path]));
  for (const disk of config.disks) {
    const path = restored.get(disk.targetDev);
    if (path !== undefined) next = setDiskSource(next, disk.targetDev, { path, format: 'qcow2' });
    else if (disk.device === 'cdrom' || disk.device === 'floppy')
      next = setCdromSource(next, disk.targetDev, placement.drives.get(disk.targetDev) ?? null);
    else if (!attachable.has(disk.targetDev)) next = removeDisk(next, disk.targetDev);
  }
  if (config.nvram) next = setNvram(next, nvramPath);
  if (input.otherEmulator) next = withoutEmulator(next);
  return setMetadata(next, restoredMetadata(config.metadata));
}

/** What was attached, deleted or half merged was so on the original alone. */
function restoredMetadata({ template, templateVersion, parent }: DomainMetadata): DomainMetadata {
  return { template, templateVersion, ...(parent ? { parent } : {}), attachments: [] };
}

function withoutEmulator(xml: string): string {
  const { root } = parseXml(xml, 'domain', 'the domain to be restored');
  dropEmulator(root);
  return serializeXml(root);
}

function dropEmulator(domain: Parameters<typeof child>[0]): void {
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
  for (const { disk, layers } of input.placement.disks) {
    for (const [index, { path }] of layers.entries()) paths.set(disk.layers[index]!.formerPath!, path);
  }
  for (const iso of input.manifest.isos) {
    const path = input.placement.drives.get(iso.target);
    if (path) paths.set(iso.formerPath, path);
  }
  const oldNvram = input.config.nvram?.path;
  if (oldNvram && input.nvramPath) paths.set(oldNvram, input.nvramPath);
  return paths;
}

/**
 * A saved state's XML for the restored VM. Layers that were raw are qcow2 now, so the frozen disks are written anew and
 * not only their paths; disks that did not come back are taken out.
 */
export function restoredState(
  xml: string,
  input: DefinitionInput,
  paths: ReadonlyMap<string, string>,
): string {
  const edited = editSnapshot(xml, { identity: input.identity, paths });
  const { root } = parseXml(edited, 'domainsnapshot', 'the saved state to be restored');
  const restored = new Set(input.placement.disks.map(({ disk }) => disk.target));
  const layerPaths = new Set(input.placement.disks.flatMap(({ layers }) => layers.map(({ path }) => path)));
  for (const name of ['domain', 'inactiveDomain']) {
    const domain = child(root, name);
    if (!domain) continue;
    if (input.otherEmulator) dropEmulator(domain);
    for (const disk of childrenAt(domain, 'devices/disk')) {
      const target = attr(child(disk, 'target'), 'dev') ?? '';
      const source = child(disk, 'source');
      const path = attr(source, 'file') ?? attr(source, 'dev');
      if ((attr(disk, 'device') ?? 'disk') !== 'disk') continue;
      if (path !== undefined && layerPaths.has(path)) applySource(disk, { path, format: 'qcow2' });
      else if (!restored.has(target) && !input.attachable.has(target)) remove(disk);
    }
  }
  for (const disk of childrenAt(root, 'disks/disk')) {
    if (attr(disk, 'snapshot') === 'external' && !restored.has(attr(disk, 'name') ?? '')) remove(disk);
  }
  dropForeignEntries(root);
  return serializeXml(root);
}

/** `<disks>` may only name disks of the domain in the same XML. */
function dropForeignEntries(root: Parameters<typeof child>[0]): void {
  const domain = child(root, 'domain');
  if (!domain) return;
  const targets = new Set(childrenAt(domain, 'devices/disk').map(disk => attr(child(disk, 'target'), 'dev')));
  const holder = child(root, 'disks');
  for (const disk of holder ? children(holder, 'disk') : []) {
    if (!targets.has(attr(disk, 'name'))) remove(disk);
  }
}

/**
 * The XML inside a memory file: the devices stay as they were (the memory knows them), files and identity are new. It
 * names the layers that were current when the memory was saved.
 */
export function restoredMemoryXml(
  xml: string,
  input: DefinitionInput,
  paths: ReadonlyMap<string, string>,
): string {
  const restored = new Set(input.placement.disks.map(({ disk }) => disk.target));
  let next = setIdentity(stripBackingStore(xml), input.identity);
  for (const disk of parseDomain(xml, 'a saved memory').disks) {
    const path = paths.get(disk.path ?? '');
    if (restored.has(disk.targetDev) && path)
      next = setDiskSource(next, disk.targetDev, { path, format: 'qcow2' });
  }
  next = replacePaths(next, paths);
  return input.otherEmulator ? withoutEmulator(next) : next;
}
