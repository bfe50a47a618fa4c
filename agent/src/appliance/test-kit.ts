// Helpers of this folder's tests: appliances and images made by hand, and by programs.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateSync } from 'node:zlib';
import { expect } from '@jest/globals';
import { roundUp } from '@virtkeep/shared/units';
import { Header, type HeaderData } from 'tar';

export const signal: AbortSignal = new AbortController().signal;

/** A directory of the test file's own. */
export function scratch(): { at: (name: string) => string; remove: () => void } {
  const path = mkdtempSync(join(tmpdir(), 'virtkeep-appliance-'));
  return { at: name => join(path, name), remove: () => rmSync(path, { recursive: true, force: true }) };
}

export const tool = (program: string, args: string[], cwd = '/'): string =>
  execFileSync(program, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

/** The error of the table that a promise ends with. */
export const invalid = (reason: RegExp, msgKey = 'appliance_invalid') =>
  expect.objectContaining({ msgKey, message: expect.stringMatching(reason) });

/** A member's header, or any other of the given type, and its data. */
export function tarMember(name: string, data: string | Buffer, more: HeaderData = {}): Buffer {
  const bytes = Buffer.from(data);
  const header = new Header({ path: name, mode: 0o644, size: bytes.length, type: 'File', ...more });
  header.encode();
  return Buffer.concat([header.block!, bytes], 512 + roundUp(bytes.length, 512));
}

/** Changes a header block and makes its checksum right again. */
export function withHeader(member: Buffer, change: (block: Buffer) => void): Buffer {
  const copy = Buffer.from(member);
  const block = copy.subarray(0, 512);
  change(block);
  block.fill(' ', 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return copy;
}

export const pax = (records: string): Buffer => {
  const body = Buffer.from(records);
  const header = new Header({ path: 'PaxHeader', size: body.length, type: 'ExtendedHeader', mode: 0o644 });
  header.encode();
  return Buffer.concat([header.block!, body], 512 + roundUp(body.length, 512));
};
/** A record as pax counts it: its length, itself included. */
export const record = (key: string, value: string): string => counted(`${key}=${value}\n`);

function counted(text: string): string {
  let length = text.length + 1;
  while (String(length).length + 1 + text.length !== length) length = String(length).length + 1 + text.length;
  return `${length} ${text}`;
}

export const tar = (...members: Buffer[]): Buffer => Buffer.concat([...members, Buffer.alloc(1024)]);

const GRAIN = 64 * 1024;
const TABLE_GRAINS = 512;
const sector = (bytes: Buffer): Buffer => Buffer.concat([bytes], roundUp(bytes.length, 512));

export interface VmdkChanges {
  header?: (block: Buffer) => void;
  footer?: (block: Buffer) => void;
  text?: string;
}

export const VMDK_TEXT = [
  '# Disk DescriptorFile',
  'version=1',
  'CID=12345678',
  'parentCID=ffffffff',
  'createType="streamOptimized"',
  '',
  'RW 2048 SPARSE "generated-stream.vmdk"',
  '',
].join('\n');

/** A stream-optimised VMDK as VMware's tools write it, which is with a footer; QEMU writes none. */
export function streamVmdk(content: Buffer, changes: VmdkChanges = {}): Buffer {
  const head = Buffer.alloc(512);
  head.write('KDMV', 0, 'latin1');
  head.writeUInt32LE(3, 4);
  head.writeUInt32LE(0x30001, 8);
  head.writeBigUInt64LE(BigInt(content.length / 512), 12);
  head.writeBigUInt64LE(128n, 20);
  head.writeBigUInt64LE(1n, 28);
  head.writeBigUInt64LE(20n, 36);
  head.writeUInt32LE(512, 44);
  head.writeBigUInt64LE(0xffff_ffff_ffff_ffffn, 56);
  head.writeBigUInt64LE(128n, 64);
  head.write('\n \r\n', 73, 'latin1');
  head.writeUInt16LE(1, 77);
  const foot = Buffer.from(head);
  changes.header?.(head);
  const text = Buffer.alloc(127 * 512);
  text.write(changes.text ?? VMDK_TEXT);
  const pieces: Buffer[] = [head, text];
  let at = 128 * 512;
  const put = (bytes: Buffer): number => {
    const here = at / 512;
    pieces.push(sector(bytes));
    at += roundUp(bytes.length, 512);
    return here;
  };
  const marker = (sectors: number, type: number): Buffer => {
    const bytes = Buffer.alloc(512);
    bytes.writeBigUInt64LE(BigInt(sectors));
    bytes.writeUInt32LE(type, 12);
    return bytes;
  };
  const tables: number[] = [];
  for (let first = 0; first * GRAIN < content.length; first += TABLE_GRAINS) {
    const table = Buffer.alloc(TABLE_GRAINS * 4);
    for (let index = 0; index < TABLE_GRAINS; index++) {
      const grain = content.subarray((first + index) * GRAIN, (first + index + 1) * GRAIN);
      if (grain.every(byte => byte === 0)) continue;
      const packed = deflateSync(grain, { level: 1 });
      const head = Buffer.alloc(12);
      head.writeBigUInt64LE(BigInt((first + index) * 128));
      head.writeUInt32LE(packed.length, 8);
      table.writeUInt32LE(put(Buffer.concat([head, packed])), index * 4);
    }
    put(marker(4, 1));
    tables.push(put(table));
  }
  const directory = Buffer.alloc(roundUp(tables.length * 4, 512));
  for (const [index, table] of tables.entries()) directory.writeUInt32LE(table, index * 4);
  put(marker(directory.length / 512, 2));
  foot.writeBigUInt64LE(BigInt(put(directory)), 56);
  changes.footer?.(foot);
  put(marker(1, 3));
  put(foot);
  put(marker(0, 0));
  return Buffer.concat(pieces);
}
