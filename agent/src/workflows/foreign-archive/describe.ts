/**
 * What an archive without manifest holds, as a manifest would tell it: by its configuration, the headers of its images and the names of
 * its members (specification 2.1). It is somebody else's: nobody vouches for it, it is never extended, and what cannot be known is said.
 */
import { basename } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { isUuid, uuidV5 } from '@virtkeep/shared/ids';
import {
  type Archive,
  type Manifest,
  type ManifestDisk,
  type MemberRecord,
  manifestFault,
  memberNames,
} from '../../archive/index.ts';
import { diskId, imageHeaderOf } from '../../disks/index.ts';
import type { DiskConfig, DomainConfig, SnapshotConfig } from '../../domain-xml/index.ts';
import {
  type ForeignChain,
  type ForeignChains,
  type ForeignImage,
  resolveChains,
  UnclearChains,
} from './chains.ts';
import { type Definitions, readDefinitions } from './definitions.ts';
import { externalOf, type FindMember, finderOf, overlaysOf } from './named-members.ts';

/** Most images whose headers are read. */
const MAX_IMAGES = 1000;
/** Of a VM whose definition has none. */
const NO_UUID = '00000000-0000-0000-0000-000000000000';
/** Namespace of what an archive without id is called (made once for this purpose). */
const NO_ID = '4c1a7f0e-63d4-4d0b-8a0e-5f6f2b1f7c35';

/** An archive as it is read where no manifest of its own can be used. */
export interface Described {
  manifest: Manifest;
  /** What is not known of it. */
  warnings: string[];
}

type Reading = Pick<Archive, 'path' | 'members' | 'again' | 'readMember' | 'readHead'>;

/**
 * @param modified when the file was changed last: the only time that is known of it
 * @throws VirtkeepError archive_unsupported, archive_damaged, xml_invalid, each with the member it is about; io_failed, canceled
 */
export async function describeForeign(
  archive: Reading,
  modified: Date,
  signal: AbortSignal,
): Promise<Described> {
  if (archive.again !== null) {
    const text =
      'The archive was unpacked and packed again: it is read by its manifest, and is neither extended nor compressed or unpacked.';
    return { manifest: archive.again, warnings: [text] };
  }
  const definitions = await readDefinitions(archive, signal);
  const images = await readImages(archive, definitions.current.config, signal);
  const found = chainsOf(archive, definitions, images);
  return manifestFrom(archive, definitions, found, modified);
}

async function readImages(
  archive: Reading,
  { disks }: DomainConfig,
  signal: AbortSignal,
): Promise<ForeignImage[]> {
  const named = new Set(disks.filter(isFileDisk).map(({ path }) => basename(path ?? '')));
  const found = archive.members.filter(
    ({ name, kind }) => kind === 'disk' || kind === 'layer' || named.has(name),
  );
  if (found.length > MAX_IMAGES) {
    const reason = `it has ${found.length} images, more than are read without a manifest`;
    throw new VirtkeepError('archive_unsupported', { path: archive.path, reason });
  }
  const images: ForeignImage[] = [];
  for (const { name: member, sizeBytes } of found) {
    signal.throwIfAborted();
    const header = imageHeaderOf(await archive.readHead(member), sizeBytes);
    const { format, virtualSize, backingFile: name, backingPath: path, backingFormat } = header;
    const fault = faultOf(header);
    images.push({
      member,
      virtualSize,
      backing: name === undefined || format !== 'qcow2' ? null : { name, path, format: backingFormat },
      ...(fault === undefined ? {} : { fault }),
    });
  }
  return images;
}

function faultOf(header: ReturnType<typeof imageHeaderOf>): string | undefined {
  if (header.format !== 'qcow2') return 'is not a qcow2 image';
  if (header.dataFile) return 'keeps its data in another file';
  if (header.unknownFeatures) return 'uses features that are not known';
  return undefined;
}

const isFileDisk = ({ device, type }: DiskConfig): boolean => device === 'disk' && type !== 'network';

/** @throws VirtkeepError archive_damaged */
function chainsOf(
  { path, members }: Reading,
  { current, states, hasSeveral }: Definitions,
  images: readonly ForeignImage[],
): ForeignChains {
  const disks = current.config.disks.filter(isFileDisk).map(disk => ({
    target: disk.targetDev,
    path: disk.path ?? disk.volume?.name ?? '',
    files: disk.backingChain && disk.backingChain.length + 1,
  }));
  const damaged = (reason: string) => new VirtkeepError('archive_damaged', { path, reason });
  try {
    const configs = states.map(({ config }) => config);
    const formerPaths = overlaysOf(configs, members);
    const overlayPaths = new Set(configs.flatMap(externalOf).map(({ path }) => path!));
    const found = resolveChains({
      images,
      disks,
      formerPaths,
      overlayPaths,
      hasSeveralStates: hasSeveral,
    });
    if (disks.length > 0 && found.chains.length === 0)
      throw new UnclearChains(`it has none of the disks that "${current.member}" names`);
    for (const { outside, layers } of found.chains)
      if (outside !== null && current.config.metadata.parent === undefined)
        throw new UnclearChains(
          `"${layers[0]!.image.member}" stands on ${outside.path.slice(0, 200)}, which is not in the archive`,
        );
    return found;
  } catch (error) {
    if (error instanceof UnclearChains) throw damaged(error.message);
    throw error;
  }
}

function manifestFrom(
  { path, members }: Reading,
  { current, states, hasSeveral, warnings: unread }: Definitions,
  { chains, missing, unused, isAssumed }: ForeignChains,
  modified: Date,
): Described {
  const { config, member: xmlMember, number } = current;
  const warnings = [
    `The archive has no manifest of this service: it is read by "${xmlMember}", and how its disks were saved is not recorded.`,
    ...unread,
    ...(hasSeveral
      ? [`It has configurations of several states: only the last, "${xmlMember}", is read.`]
      : []),
    ...(isAssumed
      ? [
          `"${chains[0]!.layers.at(-1)!.image.member}" is taken for ${chains[0]!.target}, since there is no other.`,
        ]
      : []),
    ...(unused.length > 0 ? [`Nothing names ${listed(unused)}: not restored.`] : []),
  ];
  const records = recordsOf(members, chains);
  const find = finderOf(records);
  const firmware = firmwareOf(current, find, warnings);
  const saved = statesOf(states, find, chains, warnings);
  warnOfMemory(records, saved, warnings);
  const created = modified.toISOString();
  const { metadata } = config;
  const manifest: Manifest = {
    formatVersion: 1,
    backupId: uuidV5(NO_ID, path),
    toolVersion: '',
    created,
    vm: { uuid: isUuid(config.uuid) ? config.uuid : NO_UUID, name: config.name },
    isTemplate: metadata.template,
    templateVersion: metadata.template ? String(metadata.templateVersion) : null,
    template: metadata.parent
      ? { domainId: metadata.parent.id, name: null, version: String(metadata.parent.version) }
      : null,
    incremental: false,
    states: [
      { number, name: null, consistency: 'crash', created, xmlMember, memoryMember: null, ...firmware },
    ],
    disks: chains.map(chain => diskOf(chain, config)),
    isos: isosOf(config, find),
    luns: config.disks
      .filter(({ device }) => device === 'lun')
      .map(({ targetDev, source }) => ({ target: targetDev, formerPath: source, wwn: null })),
    snapshots: saved,
    excludedDisks: [
      ...missing.map(disk => excluded(disk.target, disk.path, 'it is not in the archive')),
      ...config.disks
        .filter(({ device, type }) => device === 'disk' && type === 'network')
        .map(({ targetDev, source }) => excluded(targetDev, source, 'it is on network storage')),
    ],
    members: records,
    options: {},
    warnings: [],
    fallbackReason: null,
  };
  const fault = manifestFault(manifest);
  if (fault !== undefined) throw new VirtkeepError('archive_damaged', { path, reason: fault });
  return { manifest, warnings };
}

const excluded = (target: string, formerPath: string, reason: string): Manifest['excludedDisks'][number] => ({
  target,
  id: null,
  formerPath,
  reason,
});

/** Most names in one warning. */
const MOST_NAMED = 10;

function listed(names: readonly string[]): string {
  const named = names.slice(0, MOST_NAMED).map(name => `"${name}"`);
  const rest = names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : '';
  return `${named.join(', ')}${rest}`;
}

/** An image that is used as a layer is a layer, whatever its name. */
function recordsOf(members: Reading['members'], chains: readonly ForeignChain[]): MemberRecord[] {
  const kinds = new Map(
    chains.flatMap(({ layers }) =>
      layers.map(({ image }, index) => [image.member, index === 0 ? 'disk' : 'layer'] as const),
    ),
  );
  return members.map(({ name, kind, sizeBytes, dataOffset }) => ({
    name,
    kind: kinds.get(name) ?? kind,
    sizeBytes,
    dataOffset,
    sha256: null,
    formerPath: null,
  }));
}

function diskOf({ target, layers, outside }: ForeignChain, { disks }: DomainConfig): ManifestDisk {
  const config = disks.find(({ targetDev }) => targetDev === target)!;
  const formerPath = config.path ?? '';
  const isRawLuks = config.encrypted && config.format !== 'qcow2' && layers.length === 1;
  return {
    id: diskId(layers[0]!.image.member),
    target,
    bus: config.bus || null,
    virtualSizeBytes: layers.at(-1)!.image.virtualSize,
    format: 'qcow2',
    ...(isRawLuks ? { encryption: 'luks' as const } : {}),
    formerFormat: config.format ?? 'raw',
    formerPath,
    poolId: null,
    poolName: null,
    layers: layers.map(({ image, formerPath: former }) => ({
      member: image.member,
      stateNumber: 1,
      frozenBy: null,
      formerPath: former,
    })),
    base: outside && { ...outside, diskId: diskId(outside.path) },
  };
}

const isDrive = ({ device }: DiskConfig): boolean => device === 'cdrom' || device === 'floppy';

function isosOf({ disks }: DomainConfig, find: FindMember): Manifest['isos'] {
  return disks
    .filter(disk => isDrive(disk) && disk.path !== undefined)
    .map(({ targetDev, path }) => {
      const image = find([basename(path!), memberNames.iso(path!)], ['iso', 'other']);
      return {
        target: targetDev,
        member: image?.name ?? null,
        formerPath: path!,
        sizeBytes: image?.sizeBytes ?? 0,
        poolId: null,
        poolName: null,
      };
    });
}

/** UEFI variables and TPM state of the current configuration, by the names that this service gives them, or by the file's own. */
function firmwareOf(
  { config, member }: Definitions['current'],
  find: FindMember,
  warnings: string[],
): Pick<Manifest['states'][number], 'nvram' | 'tpm'> {
  const prefix = /^\d+_/.exec(member)?.[0] ?? '';
  const named = (...names: string[]) => find(names, ['nvram', 'tpm', 'other'])?.name;
  const formerPath = config.nvram?.path ?? null;
  const nvram = config.nvram && named(`${prefix}nvram.fd`, basename(formerPath ?? ''));
  const tpm = config.tpm && named(`${prefix}tpm.tar`);
  if (config.nvram && !nvram) warnings.push('The UEFI variables are not in the archive: new ones are made.');
  if (config.tpm && !tpm)
    warnings.push('The state of the TPM is not in the archive: what the guest sealed with it is lost.');
  return {
    nvram: nvram ? { member: nvram, formerPath, format: null } : null,
    tpm: tpm ? { member: tpm, formerPath: null, format: 'tar' } : null,
  };
}

function statesOf(
  states: Definitions['states'],
  find: FindMember,
  chains: readonly ForeignChain[],
  warnings: string[],
): Manifest['snapshots'] {
  const tops = new Set(chains.map(({ layers }) => layers.at(-1)!.formerPath));
  const saved = new Map<string, Manifest['snapshots'][number]>();
  for (const { member: xmlMember, config } of states) {
    const { name, memory } = config;
    const leaveOut = (reason: string) => warnings.push(`The saved state "${name}" is left out: ${reason}.`);
    if (saved.has(name)) {
      leaveOut(`"${xmlMember}" is another of the same name`);
      continue;
    }
    const memoryNames = [basename(memory.path ?? ''), memberNames.memory(name)];
    const memoryMember = memory.mode === 'external' ? find(memoryNames, ['memory'])?.name : null;
    if (memoryMember === undefined) {
      leaveOut('its memory is not in the archive');
      continue;
    }
    const unknown = unknownDisks(config, chains);
    if (unknown.length > 0) {
      leaveOut(`which layer of ${unknown.join(', ')} is of it cannot be told`);
      continue;
    }
    saved.set(name, {
      name,
      parent: config.parent ?? null,
      current: config.disks.some(({ path }) => path !== undefined && tops.has(path)),
      created: timeOf(config.creationTime),
      description: config.description || null,
      xmlMember,
      memoryMember,
      formerMemoryPath: memory.path ?? null,
      nvram: null,
      tpm: null,
    });
  }
  return [...saved.values()];
}

/**
 * Disks of the archive that a saved state has although no layer is known to be its overlay. The state would come back without these
 * disks, and its memory would belong to another machine.
 */
function unknownDisks({ disks }: SnapshotConfig, chains: readonly ForeignChain[]): string[] {
  const overlayPaths = new Set(
    chains.flatMap(({ layers }) => layers.slice(1).map(({ formerPath }) => formerPath)),
  );
  const held = new Set(chains.map(({ target }) => target));
  return disks
    .filter(
      ({ mode, name, path }) => mode === 'external' && held.has(name) && !overlayPaths.has(path ?? null),
    )
    .map(({ name }) => name);
}

/** A time from libvirt's seconds; null for an invalid one. */
function timeOf(seconds: number): string | null {
  const time = new Date(seconds * 1000);
  return Number.isNaN(time.getTime()) ? null : time.toISOString();
}

/** Which instant a memory is of is told by saved states alone, and one that does not fit its disks destroys them. */
function warnOfMemory(
  records: readonly MemberRecord[],
  saved: Manifest['snapshots'],
  warnings: string[],
): void {
  const used = new Set(saved.map(({ memoryMember }) => memoryMember));
  const left = records.filter(({ name, kind }) => kind === 'memory' && !used.has(name));
  if (left.length === 0) return;
  const names = listed(left.map(({ name }) => name));
  warnings.push(`Of which instant ${names} is, nothing tells: the VM starts as after a power cut.`);
}
