/**
 * The archive that Proxmox VE writes of a VM (VMA, version 1), as bytes; pure.
 *
 * A header, then extents until the file ends. The header has a table of configuration files, a table of devices, and a buffer of blobs
 * that both point into. An extent is 512 bytes that say which clusters of which devices follow, and of each which of its sixteen
 * blocks: those that are zero are left out. Numbers are big-endian, but the length before a blob, which is little-endian. Headers carry an MD5
 * of themselves; the data has none, so a flipped bit in it is noticed only by what packs the archive.
 */
import { createHash } from 'node:crypto';
import { KiB, MiB } from '@virtkeep/shared/units';
import { MAX_VIRTUAL_BYTES } from '../bounds.ts';
import { Fault, shown } from '../fault.ts';

export const BLOCK_BYTES = 4 * KiB;
export const CLUSTER_BYTES = 64 * KiB;
export const EXTENT_HEADER_BYTES = 512;
/** The tables of a header, before its blobs. */
export const TABLES_BYTES = 12_288;

/** Blobs are texts of a few KiB. */
const MAX_HEADER_BYTES = 8 * MiB;
const CLUSTERS_PER_EXTENT = 59;
const BLOCKS_PER_CLUSTER = CLUSTER_BYTES / BLOCK_BYTES;
const TABLE_ENTRIES = 256;
const SECTOR_BYTES = 512;
const MAX_DEVICE_NAME_BYTES = 255;

const AT = {
  version: 4, uuid: 8, created: 24, md5: 32, blobsOffset: 48, blobsSize: 52, size: 56, configNames: 2044, configData: 3068,
  devices: 4096, extentBlocks: 6, extentMd5: 24, clusters: 40,
}; // biome-ignore format: a table
const DEVICE_BYTES = 32;
const MD5_BYTES = 16;
const UUID_BYTES = 16;

export interface VmaConfig {
  name: string;
  bytes: Buffer;
}

export interface VmaDevice {
  /** From 1 to 255. */
  id: number;
  name: string;
  sizeBytes: number;
  /** The memory of a VM that was saved with it: no disk. */
  isMemory: boolean;
}

export interface VmaHeader {
  uuid: Buffer;
  created: Date;
  configs: VmaConfig[];
  devices: VmaDevice[];
}

/** How long a header is, by its tables. @throws Fault: it is no VMA, or one that is not read */
export function headerBytes(tables: Buffer): number {
  if (tables.length < TABLES_BYTES) throw new Fault(`its header ends at byte ${tables.length}`);
  if (tables.toString('latin1', 0, 4) !== 'VMA\0')
    throw new Fault('it is no VMA: its first bytes are others');
  const version = tables.readUInt32BE(AT.version);
  if (version !== 1) throw new Fault(`its header has version ${version}, only version 1 is read`);
  const size = tables.readUInt32BE(AT.size);
  if (size < TABLES_BYTES || size > MAX_HEADER_BYTES || size % SECTOR_BYTES !== 0)
    throw new Fault(`its header has a size of ${size} bytes`);
  return size;
}

/** @param bytes as many as `headerBytes` says @throws Fault */
export function parseHeader(bytes: Buffer): VmaHeader {
  if (bytes.length !== headerBytes(bytes)) throw new Fault(`its header ends at byte ${bytes.length}`);
  if (!isSound(bytes, AT.md5)) throw new Fault('the checksum of its header is wrong');
  const blobs = blobsOf(bytes);
  const seconds = Number(bytes.readBigInt64BE(AT.created));
  const created = new Date(seconds * 1000);
  if (Number.isNaN(created.getTime())) throw new Fault(`its header has the time ${seconds}`);
  const devices = devicesOf(bytes, blobs);
  return {
    uuid: Buffer.from(bytes.subarray(AT.uuid, AT.uuid + UUID_BYTES)),
    created,
    configs: configsOf(bytes, blobs),
    devices,
  };
}

/** Whether the MD5 that a header carries is that of the header, with zeros in its place. */
function isSound(bytes: Buffer, at: number): boolean {
  const md5 = createHash('md5')
    .update(bytes.subarray(0, at))
    .update(Buffer.alloc(MD5_BYTES))
    .update(bytes.subarray(at + MD5_BYTES))
    .digest();
  return md5.equals(bytes.subarray(at, at + MD5_BYTES));
}

/** A blob by where it begins; `place` names what points to it. */
type Blobs = (offset: number, place: string) => Buffer;

function blobsOf(bytes: Buffer): Blobs {
  const offset = bytes.readUInt32BE(AT.blobsOffset);
  const size = bytes.readUInt32BE(AT.blobsSize);
  if (offset < TABLES_BYTES || offset + size > bytes.length)
    throw new Fault(`its header has ${size} bytes of blobs at byte ${offset}`);
  const buffer = bytes.subarray(offset, offset + size);
  return (at, place) => {
    const end = at + 2 <= buffer.length ? at + 2 + buffer.readUInt16LE(at) : Number.POSITIVE_INFINITY;
    if (end > buffer.length)
      throw new Fault(`its header's ${place} points to byte ${at} of ${size} of blobs`);
    return Buffer.from(buffer.subarray(at + 2, end));
  };
}

/** A name as the header has it: with a zero at its end. */
function nameAt(blobs: Blobs, at: number, place: string): string {
  const blob = blobs(at, place);
  if (blob.length < 2 || blob.indexOf(0) !== blob.length - 1)
    throw new Fault(`its header's ${place} has no name of text`);
  return blob.toString('utf8', 0, blob.length - 1);
}

function configsOf(bytes: Buffer, blobs: Blobs): VmaConfig[] {
  const configs: VmaConfig[] = [];
  for (let index = 0; index < TABLE_ENTRIES; index++) {
    const [name, data] = [AT.configNames, AT.configData].map(at => bytes.readUInt32BE(at + 4 * index));
    if (name === 0 || data === 0) continue;
    const config = {
      name: nameAt(blobs, name!, `configuration ${index}`),
      bytes: blobs(data!, `configuration ${index}`),
    };
    if (configs.some(other => other.name === config.name))
      throw new Fault(`its header has two configurations ${shown(config.name)}`);
    configs.push(config);
  }
  return configs;
}

function devicesOf(bytes: Buffer, blobs: Blobs): VmaDevice[] {
  const devices: VmaDevice[] = [];
  let total = 0;
  for (let id = 1; id < TABLE_ENTRIES; id++) {
    const at = AT.devices + DEVICE_BYTES * id;
    const nameOffset = bytes.readUInt32BE(at);
    const size = bytes.readBigUInt64BE(at + 8);
    if (nameOffset === 0 || size === 0n) continue;
    const name = nameAt(blobs, nameOffset, `device ${id}`);
    const isMemory = name === 'vmstate';
    const sizeBytes = Number(size);
    total += sizeBytes;
    if (Buffer.byteLength(name) > MAX_DEVICE_NAME_BYTES)
      throw new Fault(`its header's device ${id} has a name of ${Buffer.byteLength(name)} bytes`);
    if (total > MAX_VIRTUAL_BYTES || (!isMemory && sizeBytes % SECTOR_BYTES !== 0))
      throw new Fault(`its header's device ${shown(name)} has ${size} bytes`);
    if (devices.some(other => other.name === name))
      throw new Fault(`its header has two devices ${shown(name)}`);
    devices.push({ id, name, sizeBytes, isMemory });
  }
  if (devices.length === 0) throw new Fault('its header has no devices');
  return devices;
}

/** A cluster that an extent brings. */
export interface ExtentCluster {
  device: number;
  cluster: number;
  /** The lowest bit is the first block: set of those whose bytes follow. */
  mask: number;
}

/** What an extent brings. @param bytes the 512 of its header @throws Fault */
export function parseExtent(bytes: Buffer, uuid: Buffer): ExtentCluster[] {
  if (bytes.toString('latin1', 0, 4) !== 'VMAE') throw new Fault('no extent begins there');
  if (!bytes.subarray(AT.uuid, AT.uuid + UUID_BYTES).equals(uuid))
    throw new Fault('it is an extent of another archive');
  if (!isSound(bytes, AT.extentMd5)) throw new Fault('the checksum of its header is wrong');
  const clusters: ExtentCluster[] = [];
  let blocks = 0;
  for (let index = 0; index < CLUSTERS_PER_EXTENT; index++) {
    const at = AT.clusters + 8 * index;
    const [mask, device, cluster] = [bytes.readUInt16BE(at), bytes[at + 3]!, bytes.readUInt32BE(at + 4)];
    if (device === 0) continue;
    clusters.push({ device, cluster, mask });
    blocks += bitsOf(mask);
  }
  const told = bytes.readUInt16BE(AT.extentBlocks);
  if (told !== blocks) throw new Fault(`its header tells ${told} blocks and lists ${blocks}`);
  return clusters;
}

function bitsOf(mask: number): number {
  let bits = 0;
  for (let left = mask; left > 0; left >>>= 1) bits += left & 1;
  return bits;
}

/** Bytes of a cluster that follow one another, in the device. */
export interface Part {
  offset: number;
  lengthBytes: number;
}

/** What a mask says of a cluster, as few parts as there are. */
export function partsOf({ cluster, mask }: ExtentCluster): Part[] {
  const parts: Part[] = [];
  for (let block = 0; block < BLOCKS_PER_CLUSTER; block++) {
    if (((mask >>> block) & 1) === 0) continue;
    const offset = cluster * CLUSTER_BYTES + block * BLOCK_BYTES;
    const last = parts.at(-1);
    if (last && last.offset + last.lengthBytes === offset) last.lengthBytes += BLOCK_BYTES;
    else parts.push({ offset, lengthBytes: BLOCK_BYTES });
  }
  return parts;
}
