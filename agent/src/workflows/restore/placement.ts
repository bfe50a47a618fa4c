/**
 * Where the files of a backup go, by the rules of the specification (2.3); pure. A path from the archive is only ever
 * used when it lies inside a pool of this node that may be written to; otherwise its file goes where the backup lies.
 */
import { basename, dirname, join, normalize } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Manifest, ManifestDisk } from '../../archive/index.ts';
import { BACKUPS_DIR, backupTargetRefusal, type PoolRecord, poolOfPath } from '../../pools/index.ts';
import { layerName } from './layer-name.ts';

/**
 * What a restored disk consists of: `chain`, its layers as they are in the archive; `flat`, one image into which they
 * are merged; `overlay`, one image that stands on the archive until its data are pulled in.
 */
export type DiskShape = 'chain' | 'flat' | 'overlay';

export interface PlacementInput {
  manifest: Manifest;
  shape: DiskShape;
  /** Per target the index of the first layer of each file, with `chain`; absent: each layer is a file. */
  files: ReadonlyMap<string, readonly number[]>;
  /** Memory files that are extracted: of the state itself and of the saved states that come back. */
  memoryMembers: string[];
  /** Bytes that each member takes when it is written, as the archive has it and not as its manifest tells it. */
  bytesOf: ReadonlyMap<string, number>;
  pools: PoolRecord[];
  /** The pool asked for; null: former paths. */
  chosen: PoolRecord | null;
  /** The pool that holds the backup. */
  backupPool: PoolRecord;
  /** Paths of the archive that exist on this node. */
  existing: ReadonlySet<string>;
  /** By their former paths the images that a drive may show there, with the paths to show (former-image.ts). */
  images: ReadonlyMap<string, string>;
  /** Files of the original domain, when it exists on this node. */
  originalFiles: ReadonlySet<string>;
  keepIdentity: boolean;
  /** Bytes free per pool id. */
  free: ReadonlyMap<string, number>;
  newId: () => string;
}

export interface FilePlacement {
  member: string;
  path: string;
  pool: PoolRecord;
  sizeBytes: number;
}

/** A file of a restored disk. */
export interface LayerPlacement extends FilePlacement {
  /** The member as the archive has it, when the file gets another form: extracted beside it, unpacked into it and removed. */
  packed?: FilePlacement;
  /** Further layers, bottom to top: extracted beside it, merged into it and removed. */
  merged: FilePlacement[];
}

export interface DiskPlacement {
  disk: ManifestDisk;
  pool: PoolRecord;
  /** Bottom to top; one when the disk is not restored as a chain. */
  layers: LayerPlacement[];
  /** Index in `layers` of the file that holds each layer of the archive. */
  fileOf: number[];
}

/** All files that a disk takes, those that are merged included. */
export const filesOf = ({ layers }: DiskPlacement): FilePlacement[] =>
  layers.flatMap(layer => [layer, ...(layer.packed ? [layer.packed] : []), ...layer.merged]);

/** Format of a restored disk's files. */
export const formatOf = ({ encryption }: Pick<ManifestDisk, 'encryption'>): 'raw' | 'qcow2' =>
  encryption ? 'raw' : 'qcow2';

export interface Placement {
  disks: DiskPlacement[];
  /** Image files to be written, once per member. */
  images: FilePlacement[];
  /** Per drive the image it shows; null: the drive is empty. */
  drives: Map<string, string | null>;
  /** Directory for memory files, its pool, and the bytes they take. */
  memory: { directory: string; pool: PoolRecord; sizeBytes: number };
  poolChanged: boolean;
  warnings: string[];
}

/**
 * @throws VirtkeepError disk_path_in_use rather than touching a file that exists; pool_no_space; the refusals of a pool
 *   that may not be written to
 */
export function placeFiles(input: PlacementInput): Placement {
  const { chosen, backupPool } = input;
  if (chosen) {
    const refusal = backupTargetRefusal(chosen);
    if (refusal) throw refusal;
  }
  const ideal = placeIn(input, chosen);
  const short = shortOfSpace(ideal, input.free);
  if (!short) return ideal;
  // rule 1: "When a pool has too little space, the pool that holds the backup is chosen"
  const noSpace = new VirtkeepError('pool_no_space', short);
  if (backupTargetRefusal(backupPool) || chosen?.id === backupPool.id) throw noSpace;
  const fallback = placeIn(input, backupPool);
  const stillShort = shortOfSpace(fallback, input.free);
  if (stillShort) throw new VirtkeepError('pool_no_space', stillShort);
  const text = `The pool ${short.pool} has too little space; the pool ${backupPool.name} that holds the backup was used.`;
  return { ...fallback, poolChanged: true, warnings: [...fallback.warnings, text] };
}

/** What is to be placed, and the paths that are in use by now: a backup may hold two images with the same name, or the same id. */
interface Placing extends PlacementInput {
  given: Set<string>;
}

const isTaken = ({ existing, given }: Placing, path: string): boolean =>
  existing.has(path) || given.has(path);

function placeIn(request: PlacementInput, pool: PoolRecord | null): Placement {
  const input: Placing = { ...request, given: new Set() };
  const warnings: string[] = [];
  const disks = input.manifest.disks.map(disk => placeDisk(input, disk, pool, warnings));
  const moved =
    pool === null &&
    disks.some(({ disk, pool: used }) => !isPlaceless(disk) && used !== formerPool(input, disk));
  const first = disks[0]?.layers.at(-1);
  const memoryPool = first?.pool ?? pool ?? fallbackPool(input);
  const { images, drives } = placeImages(input, pool, warnings);
  return {
    disks,
    images,
    drives,
    memory: {
      directory: first ? dirname(first.path) : memoryPool.path!,
      pool: memoryPool,
      sizeBytes: input.memoryMembers.reduce((sum, name) => sum + bytesOf(input, name), 0),
    },
    poolChanged: moved,
    warnings,
  };
}

function placeDisk(
  input: Placing,
  disk: ManifestDisk,
  pool: PoolRecord | null,
  warnings: string[],
): DiskPlacement {
  if (pool) return inDirectory(input, disk, pool, pool.path!);
  const former = formerPool(input, disk);
  if (!former) {
    const target = fallbackPool(input);
    if (!isPlaceless(disk))
      warnings.push(
        `${disk.target}: ${disk.formerPath} is in no data pool of this node; restored to ${target.name}.`,
      );
    return inDirectory(input, disk, target, target.path!);
  }
  const paths = ownLayers(input, disk).map(layer => layer.formerPath!);
  const taken = paths.find(path => isTaken(input, path));
  if (taken === undefined) return placeLayers(input, disk, former, paths);
  // beside the original, which uses these very files; or beside another disk of the same backup
  if (input.given.has(taken) || (!input.keepIdentity && input.originalFiles.has(taken)))
    return inDirectory(input, disk, former, dirname(disk.formerPath));
  throw new VirtkeepError('disk_path_in_use', { path: taken });
}

/** It was on no node (2.1 rule 6): the pool of the backup is where it belongs. */
const isPlaceless = ({ layers }: ManifestDisk): boolean =>
  layers.every(({ formerPath }) => formerPath === null);

/** The writable pool all of a disk's former paths lie in, or undefined. */
function formerPool(input: PlacementInput, disk: ManifestDisk): PoolRecord | undefined {
  const pools = disk.layers.map(layer => writablePoolOf(input, layer.formerPath));
  return pools.every(pool => pool !== undefined && pool === pools[0]) ? pools[0] : undefined;
}

function writablePoolOf(input: PlacementInput, path: string | null): PoolRecord | undefined {
  if (path === null || path !== normalize(path) || !path.startsWith('/')) return undefined;
  const pool = poolOfPath(path, input.pools);
  if (!pool || backupTargetRefusal(pool) || isOurs(path, pool)) return undefined;
  return pool;
}

/** Backups, and files that only this agent makes: no disk was ever there. */
function isOurs(path: string, { path: root }: PoolRecord): boolean {
  return basename(path).startsWith('.virtkeep') || path.startsWith(join(root!, BACKUPS_DIR, '/'));
}

/** File name of a layer under a disk id: the id stands first, so that it is the disk's id again. */
export function restoredName(disk: ManifestDisk, id: string, index: number): string {
  if (formatOf(disk) === 'raw') return `${id}.img`;
  return index === 0 && disk.base === null ? `${id}.qcow2` : layerName(id, index);
}

function inDirectory(input: Placing, disk: ManifestDisk, pool: PoolRecord, directory: string): DiskPlacement {
  const nameOf = (id: string, index: number) => join(directory, restoredName(disk, id, index));
  const layers = ownLayers(input, disk);
  const isId = basename(disk.id) === disk.id && !disk.id.startsWith('.');
  const kept =
    isId && input.keepIdentity && layers.every((_, index) => !isTaken(input, nameOf(disk.id, index)));
  const id = kept ? disk.id : input.newId();
  const paths = layers.map((_, index) => nameOf(id, index));
  return placeLayers(input, disk, pool, paths);
}

/** The layers that become a file each; those above it become part of it. The first bears the disk's id. */
function ownLayers(input: PlacementInput, disk: ManifestDisk): ManifestDisk['layers'] {
  return startsOf(input, disk).map(start => disk.layers[start]!);
}

function startsOf({ shape, files }: PlacementInput, { target, layers }: ManifestDisk): readonly number[] {
  return shape === 'chain' ? (files.get(target) ?? [...layers.keys()]) : [0];
}

function placeLayers(input: Placing, disk: ManifestDisk, pool: PoolRecord, paths: string[]): DiskPlacement {
  const starts = startsOf(input, disk);
  const layers = starts.map((start, index): LayerPlacement => {
    const [first, ...upper] = disk.layers.slice(start, starts[index + 1]);
    const path = paths[index]!;
    const own = place(input, first!.member, path, pool);
    const nameOfUpper = () => join(dirname(path), `.virtkeep-${input.newId()}.layer`);
    const merged = upper.map(layer => place(input, layer.member, nameOfUpper(), pool));
    const sizeBytes = merged.reduce((sum, layer) => sum + layer.sizeBytes, own.sizeBytes);
    const isPacked = formatOf(disk) === 'raw';
    const packed = isPacked ? { packed: place(input, first!.member, nameOfUpper(), pool) } : {};
    return { ...own, ...packed, sizeBytes, merged: input.shape === 'overlay' ? [] : merged };
  });
  const fileOf = disk.layers.map((_, index) => starts.findLastIndex(start => start <= index));
  return { disk, pool, layers, fileOf };
}

/** Rule 1: an image that exists at its old path is used. */
function placeImages(input: Placing, pool: PoolRecord | null, warnings: string[]) {
  const drives = new Map<string, string | null>();
  const byMember = new Map<string, FilePlacement>();
  for (const image of input.manifest.isos) {
    const { formerPath, member } = image;
    const here = input.images.get(formerPath);
    if (here !== undefined) {
      drives.set(image.target, here);
      continue;
    }
    if (member === null) {
      drives.set(image.target, null);
      const where = poolOfPath(formerPath, input.pools) ? 'on this node' : 'in a data pool of this node';
      warnings.push(
        `${image.target}: the image ${formerPath} is neither in the backup nor ${where}; the drive is empty.`,
      );
      continue;
    }
    const placement = byMember.get(member) ?? placeImage(input, member, formerPath, pool);
    byMember.set(member, placement);
    drives.set(image.target, placement.path);
  }
  return { images: [...byMember.values()], drives };
}

function placeImage(
  input: Placing,
  member: string,
  formerPath: string,
  pool: PoolRecord | null,
): FilePlacement {
  const former = writablePoolOf(input, formerPath);
  if (!pool && former && !isTaken(input, formerPath)) return place(input, member, formerPath, former);
  const target = pool ?? fallbackPool(input);
  const desired = join(target.path!, basename(formerPath));
  const path = isTaken(input, desired) ? join(target.path!, `${input.newId()}.iso`) : desired;
  return place(input, member, path, target);
}

/** The pool of the backup. @throws VirtkeepError when it may not be written to: another must be chosen (2.3 rule 7) */
function fallbackPool({ backupPool }: PlacementInput): PoolRecord {
  const refusal = backupTargetRefusal(backupPool);
  if (refusal) throw refusal;
  return backupPool;
}

function place(input: Placing, member: string, path: string, pool: PoolRecord): FilePlacement {
  input.given.add(path);
  return { member, path, pool, sizeBytes: bytesOf(input, member) };
}

const bytesOf = (input: PlacementInput, member: string): number => input.bytesOf.get(member) ?? 0;

/** Params of `pool_no_space` for the first pool that has not enough, or undefined. */
function shortOfSpace(placement: Placement, free: ReadonlyMap<string, number>) {
  const needed = new Map<PoolRecord, number>();
  const disks = placement.disks.flatMap(filesOf);
  const files = [...disks, ...placement.images, placement.memory];
  for (const { pool, sizeBytes } of files) needed.set(pool, (needed.get(pool) ?? 0) + sizeBytes);
  for (const [pool, bytes] of needed) {
    const available = free.get(pool.id) ?? 0;
    if (bytes > available) return { pool: pool.name, free_bytes: available, needed_bytes: Math.ceil(bytes) };
  }
  return undefined;
}
