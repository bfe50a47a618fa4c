// Writes VMA archives, also such as no writer would, from what is known of the format.
import { createHash } from 'node:crypto';
import { roundUp } from '@virtkeep/shared/units';

const CLUSTER = 65_536;
const BLOCK = 4096;
const SLOTS = 59;

export interface VmaMaking {
  configs?: Record<string, string>;
  /** Content by the name of the device; `vmstate` is memory. Their ids are 1, 2… */
  devices: Record<string, Buffer>;
  uuid?: Buffer;
  /** The order of clusters, which may leave some out, and repeat some. */
  order?: (clusters: Slot[]) => Slot[];
  /** Before the checksum is made. */
  header?: (bytes: Buffer) => void;
  extent?: (bytes: Buffer, index: number) => void;
}

export interface Slot {
  device: number;
  cluster: number;
  content: Buffer;
}

export const UUID = Buffer.from('00112233445566778899aabbccddeeff', 'hex');

const seal = (bytes: Buffer, at: number): Buffer => {
  bytes.fill(0, at, at + 16);
  createHash('md5').update(bytes).digest().copy(bytes, at);
  return bytes;
};

export function vma(making: VmaMaking): Buffer {
  const { devices, order = slots => slots } = making;
  const slots = Object.values(devices).flatMap((content, index) =>
    Array.from({ length: Math.ceil(content.length / CLUSTER) }, (_, cluster) => ({
      device: index + 1,
      cluster,
      content: content.subarray(cluster * CLUSTER, (cluster + 1) * CLUSTER),
    })),
  );
  return Buffer.concat([headerOf(making), ...extentsOf(order(slots), making)]);
}

function headerOf({ configs = {}, devices, uuid = UUID, header }: VmaMaking): Buffer {
  const tables = Buffer.alloc(12_288);
  const blobs: Buffer[] = [Buffer.alloc(1)];
  let at = 1;
  const put = (content: Buffer): number => {
    const here = at;
    const length = Buffer.alloc(2);
    length.writeUInt16LE(content.length);
    blobs.push(length, content);
    at += 2 + content.length;
    return here;
  };
  tables.write('VMA\0', 0, 'latin1');
  tables.writeUInt32BE(1, 4);
  uuid.copy(tables, 8);
  tables.writeBigInt64BE(1_700_000_000n, 24);
  for (const [index, [name, text]] of Object.entries(configs).entries()) {
    tables.writeUInt32BE(put(Buffer.from(`${name}\0`)), 2044 + 4 * index);
    tables.writeUInt32BE(put(Buffer.from(text)), 3068 + 4 * index);
  }
  for (const [index, [name, content]] of Object.entries(devices).entries()) {
    tables.writeUInt32BE(put(Buffer.from(`${name}\0`)), 4096 + 32 * (index + 1));
    tables.writeBigUInt64BE(BigInt(content.length), 4096 + 32 * (index + 1) + 8);
  }
  const size = roundUp(12_288 + at, 512);
  tables.writeUInt32BE(12_288, 48);
  tables.writeUInt32BE(at, 52);
  tables.writeUInt32BE(size, 56);
  const bytes = Buffer.concat([tables, ...blobs], size);
  header?.(bytes);
  return seal(bytes, 32);
}

function extentsOf(slots: Slot[], { uuid = UUID, extent }: VmaMaking): Buffer[] {
  const extents: Buffer[] = [];
  for (let first = 0; first < slots.length; first += SLOTS) {
    const head = Buffer.alloc(512);
    const data: Buffer[] = [];
    head.write('VMAE', 0, 'latin1');
    uuid.copy(head, 8);
    for (const [index, { device, cluster, content }] of slots.slice(first, first + SLOTS).entries()) {
      const whole = Buffer.concat([content], CLUSTER);
      let mask = 0;
      for (let block = 0; block < 16; block++) {
        const part = whole.subarray(block * BLOCK, (block + 1) * BLOCK);
        if (part.every(byte => byte === 0)) continue;
        mask |= 1 << block;
        data.push(part);
      }
      head.writeUInt16BE(mask, 40 + 8 * index);
      head[40 + 8 * index + 3] = device;
      head.writeUInt32BE(cluster, 40 + 8 * index + 4);
    }
    head.writeUInt16BE(data.length, 6);
    extent?.(head, extents.length);
    extents.push(Buffer.concat([seal(head, 24), ...data]));
  }
  return extents;
}

/** What of blocks is nothing, one block, and all; the last cluster is cut inside of a block. */
export function someContent(sizeBytes: number, seed = 1): Buffer {
  const content = Buffer.alloc(sizeBytes);
  for (let at = 0; at < sizeBytes; at += BLOCK) {
    const block = at / BLOCK;
    const isFull = block < 32 || (block * 2_654_435_761 + seed) % 7 < 2;
    if (isFull && block % 48 < 40)
      content.fill((block * 31 + seed) % 251 || 1, at, Math.min(at + BLOCK, sizeBytes));
  }
  return content;
}
