/** The members of an archive and its manifest, planned before the first byte is written; pure. */
import { createHash } from 'node:crypto';
import { roundUp } from '@virtkeep/shared/units';
import {
  formatVersionOf,
  type Manifest,
  type ManifestState,
  type MemberKind,
  type MemberRecord,
  memberNames,
  ON_REQUEST,
  type TarSize,
  tarSizeOf,
} from '../../archive/index.ts';
import type { DomainConfig } from '../../domain-xml/index.ts';
import { type Layer, parseIncrementTag, type SavedState } from '../../snapshots/index.ts';
import { isRawLuks } from '../domain/raw-luks.ts';
import type { Firmware } from '../firmware/state-firmware.ts';
import type { ContentPlan, DiskPlan, ImagePlan } from './plan.ts';
import type { ContinuedDisk } from './proof.ts';

/** Header, pax record and alignment before a member's data: at most. */
const HEADER_BYTES = 8192;
const UNKNOWN_SIZE: FileSize = { fileSize: 0, allocatedSize: 0 };

export type MemberPlan =
  | { name: string; kind: MemberKind; from: 'bytes'; bytes: Buffer; formerPath?: string }
  | { name: string; kind: MemberKind; from: 'file'; path: string }
  | { name: string; kind: MemberKind; from: 'raw'; path: string; virtualSize: number };

/** Bytes of a file with its holes (what progress counts), and allocated ones (what it takes on a pool). */
export interface FileSize {
  fileSize: number;
  allocatedSize: number;
  /** Time of the last change of the content, RFC 3339. */
  modified?: string;
}

/** The archive that is extended; what it has already does not go in again. */
export interface Continuation {
  manifest: Manifest;
  /** By the disk's target on the VM now. */
  disks: ReadonlyMap<string, ContinuedDisk>;
}

/** Everything the manifest says of the VM besides its members. */
export interface BackupPicture {
  config: DomainConfig;
  xml: string;
  content: ContentPlan;
  chains: ReadonlyMap<string, OwnChain>;
  states: SavedState[];
  template: Manifest['template'];
  nvram: { path: string; bytes: Buffer } | null;
  tpm: Buffer | null;
  /** The same of the VM's saved states, by name; what is not known is absent. */
  stateFirmware: ReadonlyMap<string, Firmware>;
  /** Label and memory file of the state that the backup made; null when it needed none. */
  automatic: { label: string; memoryPath: string | null } | null;
  consistency: Manifest['states'][number]['consistency'];
  /** Sizes of the files that are not disks (images, memory files). */
  sizes: ReadonlyMap<string, FileSize>;
  /** Null for a new archive. */
  continued: Continuation | null;
}

/** A disk's own layers, bottom to top, and what they stand on when that is a template's. */
export interface OwnChain {
  /** `modified` (RFC 3339) only of disks that the VM cannot write to. */
  layers: (Layer & { modified?: string })[];
  base: { path: string; format: string; diskId: string | null; fingerprint?: string } | null;
}

export interface ArchivePlan {
  members: MemberPlan[];
  manifest: ManifestBody;
  /** Files that are read; none of them may change meanwhile. */
  sources: string[];
  /** Bytes that will be read, holes included. */
  totalBytes: number;
  /** Bytes that the archive takes uncompressed. */
  neededBytes: number;
  /** Of the largest raw disk: what it takes in a file of its own on its way into a compressed archive. */
  largestRawBytes: number;
  /** The size of the tar with its earlier members and all headers; raw disks count with their allocated bytes. */
  tarSize: TarSize;
}

/** The manifest without what is known only when the archive is written. */
export type ManifestBody = Pick<
  Manifest,
  | 'vm'
  | 'isTemplate'
  | 'templateVersion'
  | 'template'
  | 'disks'
  | 'isos'
  | 'luns'
  | 'snapshots'
  | 'excludedDisks'
> & {
  state: Pick<
    ManifestState,
    'number' | 'name' | 'consistency' | 'xmlMember' | 'memoryMember' | 'nvram' | 'tpm' | 'leftOut'
  >;
};

/** Plans members in the order of docs/archive-format.md: disks, memory, images, firmware state, XML. */
export function planArchive(picture: BackupPicture): ArchivePlan {
  const number = stateNumberOf(picture.continued);
  const collect = new MemberCollector(picture.continued?.manifest ?? null, number);
  const { config, states } = picture;
  const disks = picture.content.disks.map(disk => diskEntry(collect, picture, disk));
  const memoryMember = automaticMemory(collect, picture);
  const stateMemory = states.map(state => memoryOf(collect, picture, state));
  const isos = picture.content.images.map(image => imageEntry(collect, picture, image));
  const nvram = picture.nvram && {
    member: collect.bytes(memberNames.nvram(number), 'nvram', picture.nvram.bytes, picture.nvram.path),
    formerPath: picture.nvram.path,
    format: null,
  };
  const tpm = picture.tpm && {
    member: collect.bytes(memberNames.tpm(number), 'tpm', picture.tpm),
    formerPath: null,
    format: 'tar',
  };
  const xmlName = memberNames.domainXml(number, config.name);
  const xmlMember = collect.bytes(xmlName, 'domain_xml', picture.xml);
  const leftOut = picture.content.recorded
    .filter(({ reason }) => reason === ON_REQUEST)
    .map(({ targetDev }) => targetDev);
  const snapshots = states.map((state, index) => stateEntry(collect, picture, state, stateMemory[index]!));
  return {
    members: collect.members,
    sources: collect.sources,
    totalBytes: collect.totalBytes,
    neededBytes: collect.neededBytes,
    largestRawBytes: collect.largestRawBytes,
    tarSize: collect.tarSize,
    manifest: {
      vm: { uuid: config.uuid, name: config.name },
      isTemplate: config.metadata.template,
      templateVersion: config.metadata.template ? String(config.metadata.templateVersion) : null,
      template: picture.template,
      disks,
      isos,
      luns: picture.content.luns.map(lun => ({ target: lun.targetDev, formerPath: lun.source, wwn: null })),
      snapshots,
      excludedDisks: picture.content.recorded.map(disk => ({
        target: disk.targetDev,
        id: disk.id,
        formerPath: disk.source,
        reason: disk.reason,
      })),
      state: {
        number,
        name: picture.automatic?.label ?? null,
        consistency: picture.consistency,
        xmlMember,
        memoryMember,
        nvram,
        tpm,
        ...(leftOut.length > 0 && { leftOut }),
      },
    },
  };
}

/** Number of the state that is made: 1 in a new archive. */
export function stateNumberOf(continued: Continuation | null): number {
  return (continued?.manifest.states.at(-1)?.number ?? 0) + 1;
}

/** What is known of a backup besides its members. */
export interface BackupRecord {
  backupId: string;
  toolVersion: string;
  /** When the state was made, RFC 3339. */
  created: string;
  options: Record<string, unknown>;
  warnings: string[];
  incremental: boolean;
  fallbackReason: string | null;
}

/**
 * The whole manifest, once the members' records are known. An extended archive keeps its id, its age and its states; all
 * else is as of now.
 */
export function manifestOf(
  body: ManifestBody,
  members: MemberRecord[],
  record: BackupRecord,
  former: Manifest | null,
): Manifest {
  const { state, ...vm } = body;
  const states = [...(former?.states ?? []), { ...state, created: record.created }];
  const kept = former && {
    backupId: former.backupId,
    created: former.created,
    incremental: former.incremental,
    fallbackReason: former.fallbackReason,
  };
  return { formatVersion: formatVersionOf(vm), ...record, ...vm, ...kept, states, members };
}

function diskEntry(
  collect: MemberCollector,
  picture: BackupPicture,
  disk: DiskPlan,
): Manifest['disks'][number] {
  const { layers, base } = picture.chains.get(disk.config.targetDev)!;
  const former = picture.continued?.disks.get(disk.config.targetDev);
  const from = former?.from ?? 0;
  const added = layers.slice(from).map((layer, index) => {
    const first = from + index === 0 && base === null;
    const name = first
      ? memberNames.disk(disk.id)
      : memberNames.layer(disk.id, layer.madeBy ?? `layer${from + index}`);
    const member =
      layer.format === 'raw'
        ? collect.raw(name, layer.path, layer.virtualSize, layer)
        : collect.file(name, first ? 'disk' : 'layer', layer.path, layer);
    const { frozenBy, path: formerPath, modified } = layer;
    return { member, stateNumber: collect.stateNumber, frozenBy, formerPath, ...(modified && { modified }) };
  });
  return {
    id: disk.id,
    target: disk.config.targetDev,
    bus: disk.config.bus || null,
    virtualSizeBytes: layers.at(-1)!.virtualSize,
    format: 'qcow2',
    ...(isRawLuks({ ...disk.config, layers }) ? { encryption: 'luks' as const } : {}),
    formerFormat: formerFormatOf(picture, former) ?? layers[0]!.format,
    formerPath: disk.path,
    poolId: disk.pool?.id ?? null,
    poolName: disk.pool?.name ?? null,
    layers: [...(former?.layers ?? []), ...added],
    base,
  };
}

/** The first layer that the archive has decides what a restored disk may become; it may be gone from the node. */
function formerFormatOf({ continued }: BackupPicture, former: ContinuedDisk | undefined): string | undefined {
  return former && continued?.manifest.disks.find(({ id }) => id === former.id)?.formerFormat;
}

function automaticMemory(collect: MemberCollector, { automatic, sizes }: BackupPicture): string | null {
  const path = automatic?.memoryPath;
  if (!automatic || !path) return null;
  return collect.file(memberNames.memory(automatic.label), 'memory', path, sizes.get(path));
}

function memoryOf(collect: MemberCollector, picture: BackupPicture, state: SavedState): string | null {
  const { memoryPath } = state;
  if (memoryPath === null) return null;
  const size = picture.sizes.get(memoryPath);
  const former = collect.former?.members.find(
    member =>
      member.kind === 'memory' && member.formerPath === memoryPath && member.sizeBytes === size?.fileSize,
  );
  return former?.name ?? collect.file(memberNames.memory(state.name), 'memory', memoryPath, size);
}

function imageEntry(
  collect: MemberCollector,
  picture: BackupPicture,
  image: ImagePlan,
): Manifest['isos'][number] {
  const size = picture.sizes.get(image.path);
  return {
    target: image.targetDev,
    member: image.included ? imageMember(collect, image.path, size) : null,
    formerPath: image.path,
    sizeBytes: size?.fileSize ?? 0,
    modified: size?.modified ?? null,
    poolId: image.pool?.id ?? null,
    poolName: image.pool?.name ?? null,
  };
}

/** An image is in the archive already when its path, size and time are those of the image there. */
function imageMember(collect: MemberCollector, path: string, size: FileSize | undefined): string {
  const former = collect.former?.isos.find(
    iso =>
      iso.member !== null &&
      iso.formerPath === path &&
      iso.sizeBytes === size?.fileSize &&
      size.modified !== undefined &&
      iso.modified === size.modified,
  );
  return former?.member ?? collect.file(memberNames.iso(path), 'iso', path, size);
}

function stateEntry(
  collect: MemberCollector,
  picture: BackupPicture,
  state: SavedState,
  memoryMember: string | null,
): Manifest['snapshots'][number] {
  const firmware = firmwareEntries(collect, picture, state);
  const xmlSha256 = createHash('sha256').update(state.xml).digest('hex');
  const entry = collect.former?.snapshots.find(
    former => former.name === state.name && former.xmlSha256 === xmlSha256,
  );
  const xmlName = memberNames.stateXml(collect.stateNumber, state.name);
  return {
    name: state.name,
    parent: state.parent,
    current: state.current,
    created: new Date(state.createdUnix * 1000).toISOString(),
    description: state.description || null,
    xmlMember: entry?.xmlMember ?? collect.bytes(xmlName, 'state_xml', state.xml),
    xmlSha256,
    memoryMember,
    formerMemoryPath: state.memoryPath,
    ...firmware,
  };
}

/** A saved state's firmware goes in once, whether it was its own record before or a state of this archive. */
function firmwareEntries(
  collect: MemberCollector,
  { config, stateFirmware }: BackupPicture,
  state: SavedState,
): Pick<Manifest['snapshots'][number], 'nvram' | 'tpm'> {
  const record = knownFirmware(collect.former, state);
  const { nvram, tpm } = stateFirmware.get(state.name) ?? {};
  const side = (kind: 'nvram' | 'tpm', bytes: Buffer | null | undefined) => {
    if (record?.[kind]) return record[kind];
    if (!bytes) return null;
    const member = collect.bytes(memberNames[kind](collect.stateNumber, state.name), kind, bytes);
    return kind === 'nvram'
      ? { member, formerPath: config.nvram?.path ?? null, format: null }
      : { member, formerPath: null, format: 'tar' };
  };
  return { nvram: side('nvram', nvram), tpm: side('tpm', tpm) };
}

function knownFirmware(former: Manifest | null, { name, createdUnix, description }: SavedState) {
  const recorded = former?.snapshots.find(
    snapshot =>
      snapshot.name === name &&
      snapshot.created !== null &&
      Date.parse(snapshot.created) === createdUnix * 1000,
  );
  if (recorded?.nvram || recorded?.tpm) return recorded;
  const own = former !== null && parseIncrementTag(description)?.backupId === former.backupId;
  return own ? former.states.find(state => state.name === name) : undefined;
}

/** Gathers members under unique names; a file that is needed twice (an image in two drives) goes in once. */
class MemberCollector {
  readonly members: MemberPlan[] = [];
  readonly sources: string[] = [];
  totalBytes = 0;
  neededBytes = 0;
  largestRawBytes = 0;
  /** Of the new members with their headers: at most, but for raw disks, which count with what of them is allocated. */
  #tarBytes = 0;
  /** Newest manifest of the archive that is extended. */
  readonly former: Manifest | null;
  readonly stateNumber: number;
  readonly #byFile = new Map<string, string>();
  readonly #names: Set<string>;

  constructor(former: Manifest | null, stateNumber: number) {
    this.former = former;
    this.stateNumber = stateNumber;
    this.#names = new Set(former?.members.map(({ name }) => name));
  }

  get tarSize(): TarSize {
    const before = tarSizeOf(this.former?.members ?? []);
    return { bytes: before.bytes + this.#tarBytes, members: before.members + this.members.length };
  }

  bytes(desiredName: string, kind: MemberKind, content: string | Buffer, formerPath?: string): string {
    const name = this.#unique(desiredName);
    const bytes = Buffer.from(content);
    this.members.push({ name, kind, from: 'bytes', bytes, ...(formerPath ? { formerPath } : {}) });
    this.totalBytes += bytes.length;
    this.neededBytes += roundUp(bytes.length, 512) + HEADER_BYTES;
    this.#tarBytes += HEADER_BYTES + roundUp(bytes.length, 512);
    return name;
  }

  file(desiredName: string, kind: MemberKind, path: string, size: FileSize = UNKNOWN_SIZE): string {
    return this.#once('file', path, size, () => {
      const name = this.#unique(desiredName);
      this.members.push({ name, kind, from: 'file', path });
      this.#tarBytes += HEADER_BYTES + roundUp(size.fileSize, 512);
      return name;
    });
  }

  raw(desiredName: string, path: string, virtualSize: number, size: FileSize): string {
    return this.#once('raw', path, { ...size, fileSize: virtualSize }, () => {
      const name = this.#unique(desiredName);
      this.members.push({ name, kind: 'disk', from: 'raw', path, virtualSize });
      this.#tarBytes += HEADER_BYTES + Math.min(size.allocatedSize, virtualSize);
      this.largestRawBytes = Math.max(this.largestRawBytes, size.allocatedSize);
      return name;
    });
  }

  /** A raw disk goes in as an image of another format: the same file in a drive is another member. */
  #once(from: 'file' | 'raw', path: string, size: FileSize, add: () => string): string {
    const key = `${from}:${path}`;
    const existing = this.#byFile.get(key);
    if (existing !== undefined) return existing;
    const name = add();
    this.#byFile.set(key, name);
    this.sources.push(path);
    this.totalBytes += size.fileSize;
    this.neededBytes += size.allocatedSize + HEADER_BYTES;
    return name;
  }

  /** Different texts may become the same safe name ("a/b" and "a_b"). */
  #unique(desiredName: string): string {
    const dot = desiredName.lastIndexOf('.');
    let name = desiredName;
    for (let count = 2; this.#names.has(name); count += 1)
      name = `${desiredName.slice(0, dot)}-${count}${desiredName.slice(dot)}`;
    this.#names.add(name);
    return name;
  }
}
