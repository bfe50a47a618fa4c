/** The members of an archive and its manifest, planned before the first byte is written; pure. */

import { roundUp } from '@virtkeep/shared/units';
import {
  type Manifest,
  type ManifestState,
  type MemberKind,
  type MemberRecord,
  memberNames,
} from '../../archive/index.ts';
import type { DomainConfig } from '../../domain-xml/index.ts';
import type { DiskChain, SavedState } from '../../snapshots/index.ts';
import type { ContentPlan, DiskPlan, ImagePlan } from './plan.ts';

/** Header, pax record and alignment before a member's data: at most. */
const HEADER_BYTES = 8192;
const UNKNOWN_SIZE: FileSize = { fileSize: 0, allocatedSize: 0 };

/** A full backup has one state of its own, so all its numbers are this one. */
export const STATE_NUMBER = 1;

export type MemberPlan =
  | { name: string; kind: MemberKind; from: 'bytes'; bytes: Buffer; formerPath?: string }
  | { name: string; kind: MemberKind; from: 'file'; path: string }
  | { name: string; kind: MemberKind; from: 'raw'; path: string; virtualSize: number };

/** Bytes of a file with its holes (what progress counts), and allocated ones (what it takes on a pool). */
export interface FileSize {
  fileSize: number;
  allocatedSize: number;
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
  /** Label and memory file of the state that the backup made; null when it needed none. */
  automatic: { label: string; memoryPath: string | null } | null;
  consistency: Manifest['states'][number]['consistency'];
  /** Sizes of the files that are not disks (images, memory files). */
  sizes: ReadonlyMap<string, FileSize>;
}

/** A disk's own layers, bottom to top, and what they stand on when that is a template's. */
export interface OwnChain {
  layers: DiskChain['layers'];
  base: { path: string; format: string; diskId: string | null } | null;
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
    'number' | 'name' | 'consistency' | 'xmlMember' | 'memoryMember' | 'nvram' | 'tpm'
  >;
};

/** Plans members in the order of docs/archive-format.md: disks, memory, images, firmware state, XML. */
export function planArchive(picture: BackupPicture): ArchivePlan {
  const collect = new MemberCollector();
  const { config, states } = picture;
  const disks = picture.content.disks.map(disk => diskEntry(collect, picture, disk));
  const memoryMember = automaticMemory(collect, picture);
  const stateMemory = states.map(state => memoryOf(collect, picture, state));
  const isos = picture.content.images.map(image => imageEntry(collect, picture, image));
  const nvram = picture.nvram && {
    member: collect.bytes(memberNames.nvram(STATE_NUMBER), 'nvram', picture.nvram.bytes, picture.nvram.path),
    formerPath: picture.nvram.path,
    format: null,
  };
  const tpm = picture.tpm && {
    member: collect.bytes(memberNames.tpm(STATE_NUMBER), 'tpm', picture.tpm),
    formerPath: null,
    format: 'tar',
  };
  const xmlName = memberNames.domainXml(STATE_NUMBER, config.name);
  const xmlMember = collect.bytes(xmlName, 'domain_xml', picture.xml);
  const snapshots = states.map((state, index) => stateEntry(collect, state, stateMemory[index]!));
  return {
    members: collect.members,
    sources: collect.sources,
    totalBytes: collect.totalBytes,
    neededBytes: collect.neededBytes,
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
        number: STATE_NUMBER,
        name: picture.automatic?.label ?? null,
        consistency: picture.consistency,
        xmlMember,
        memoryMember,
        nvram,
        tpm,
      },
    },
  };
}

/** The whole manifest, once the members' records are known. */
export function fullManifest(
  body: ManifestBody,
  members: MemberRecord[],
  rest: Pick<Manifest, 'backupId' | 'toolVersion' | 'created' | 'options' | 'warnings'>,
): Manifest {
  const { state, ...vm } = body;
  return {
    formatVersion: 1,
    ...rest,
    ...vm,
    incremental: false,
    states: [{ ...state, created: rest.created }],
    members,
    fallbackReason: null,
  };
}

function diskEntry(
  collect: MemberCollector,
  picture: BackupPicture,
  disk: DiskPlan,
): Manifest['disks'][number] {
  const chain = picture.chains.get(disk.config.targetDev)!;
  const { layers, base } = chain;
  const members = layers.map((layer, index) => {
    const first = index === 0 && base === null;
    const name = first
      ? memberNames.disk(disk.id)
      : memberNames.layer(disk.id, layer.madeBy ?? `layer${index}`);
    const kind = first ? 'disk' : 'layer';
    const member =
      layer.format === 'raw'
        ? collect.raw(name, layer.path, layer.virtualSize, layer)
        : collect.file(name, kind, layer.path, layer);
    return { member, stateNumber: STATE_NUMBER, frozenBy: layer.frozenBy, formerPath: layer.path };
  });
  return {
    id: disk.id,
    target: disk.config.targetDev,
    bus: disk.config.bus || null,
    virtualSizeBytes: layers.at(-1)!.virtualSize,
    format: 'qcow2',
    formerFormat: layers[0]!.format,
    formerPath: disk.path,
    poolId: disk.pool?.id ?? null,
    poolName: disk.pool?.name ?? null,
    layers: members,
    base,
  };
}

function automaticMemory(collect: MemberCollector, { automatic, sizes }: BackupPicture): string | null {
  const path = automatic?.memoryPath;
  if (!automatic || !path) return null;
  return collect.file(memberNames.memory(automatic.label), 'memory', path, sizes.get(path));
}

function memoryOf(collect: MemberCollector, picture: BackupPicture, state: SavedState): string | null {
  const { memoryPath } = state;
  if (memoryPath === null) return null;
  return collect.file(memberNames.memory(state.name), 'memory', memoryPath, picture.sizes.get(memoryPath));
}

function imageEntry(
  collect: MemberCollector,
  picture: BackupPicture,
  image: ImagePlan,
): Manifest['isos'][number] {
  const size = picture.sizes.get(image.path);
  return {
    target: image.targetDev,
    member: image.included ? collect.file(memberNames.iso(image.path), 'iso', image.path, size) : null,
    formerPath: image.path,
    sizeBytes: size?.fileSize ?? 0,
    poolId: image.pool?.id ?? null,
    poolName: image.pool?.name ?? null,
  };
}

function stateEntry(
  collect: MemberCollector,
  state: SavedState,
  memoryMember: string | null,
): Manifest['snapshots'][number] {
  const xmlName = memberNames.stateXml(STATE_NUMBER, state.name);
  return {
    name: state.name,
    parent: state.parent,
    current: state.current,
    created: new Date(state.createdUnix * 1000).toISOString(),
    description: state.description || null,
    xmlMember: collect.bytes(xmlName, 'state_xml', state.xml),
    memoryMember,
    formerMemoryPath: state.memoryPath,
    nvram: null,
    tpm: null,
  };
}

/** Gathers members under unique names; a file that is wanted twice (an image in two drives) goes in once. */
class MemberCollector {
  readonly members: MemberPlan[] = [];
  readonly sources: string[] = [];
  totalBytes = 0;
  neededBytes = 0;
  readonly #byPath = new Map<string, string>();
  readonly #names = new Set<string>();

  bytes(wanted: string, kind: MemberKind, content: string | Buffer, formerPath?: string): string {
    const name = this.#unique(wanted);
    const bytes = Buffer.from(content);
    this.members.push({ name, kind, from: 'bytes', bytes, ...(formerPath ? { formerPath } : {}) });
    this.totalBytes += bytes.length;
    this.neededBytes += roundUp(bytes.length, 512) + HEADER_BYTES;
    return name;
  }

  file(wanted: string, kind: MemberKind, path: string, size: FileSize = UNKNOWN_SIZE): string {
    return this.#once(path, size, () => {
      const name = this.#unique(wanted);
      this.members.push({ name, kind, from: 'file', path });
      return name;
    });
  }

  raw(wanted: string, path: string, virtualSize: number, size: FileSize): string {
    return this.#once(path, { ...size, fileSize: virtualSize }, () => {
      const name = this.#unique(wanted);
      this.members.push({ name, kind: 'disk', from: 'raw', path, virtualSize });
      return name;
    });
  }

  #once(path: string, size: FileSize, add: () => string): string {
    const known = this.#byPath.get(path);
    if (known !== undefined) return known;
    const name = add();
    this.#byPath.set(path, name);
    this.sources.push(path);
    this.totalBytes += size.fileSize;
    this.neededBytes += size.allocatedSize + HEADER_BYTES;
    return name;
  }

  /** Different texts may become the same safe name ("a/b" and "a_b"). */
  #unique(wanted: string): string {
    const dot = wanted.lastIndexOf('.');
    let name = wanted;
    for (let count = 2; this.#names.has(name); count += 1)
      name = `${wanted.slice(0, dot)}-${count}${wanted.slice(dot)}`;
    this.#names.add(name);
    return name;
  }
}
