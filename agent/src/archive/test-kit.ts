import { execFile } from 'node:child_process';
import { createCipheriv } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Manifest, MemberRecord } from './format/manifest.ts';
import type { MemberKind } from './format/names.ts';
import type { SignManifest } from './format/seal.ts';
import type { ArchiveTrust, JudgeArchive } from './format/trust.ts';
import type { AppenderOptions } from './format/types.ts';
import { ArchiveAppender } from './write/append.ts';
import { ArchiveWriter } from './write/writer.ts';

/** Helpers of this folder's tests. */
export const BACKUP_ID = '0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f0001';
export const VM_ID = '0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f0002';
export const CREATED = '2026-01-02T03:04:05.000Z';
export const signal: AbortSignal = new AbortController().signal;

const run = promisify(execFile);

/** Runs a referee program and returns what it printed. */
export async function tool(program: string, args: string[], cwd = '/'): Promise<string> {
  const { stdout } = await run(program, args, { cwd, maxBuffer: 64 * 1024 * 1024 });
  return stdout;
}

/** A directory of the test file's own. */
export function scratch(): { path: string; at: (name: string) => string; remove: () => void } {
  const path = mkdtempSync(join(tmpdir(), 'virtkeep-archive-'));
  return { path, at: name => join(path, name), remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** Pseudo-random bytes, half of them compressible, the same for the same seed. */
export function noise(sizeBytes: number, seed = 1): Buffer {
  const cipher = createCipheriv('aes-128-ctr', Buffer.alloc(16, seed), Buffer.alloc(16));
  const bytes = cipher.update(Buffer.alloc(sizeBytes));
  for (let at = 0; at < sizeBytes; at += 8192)
    bytes.fill(`line ${at % 65_536}\n`, at, Math.min(at + 4096, sizeBytes));
  return bytes;
}

/** A manifest that describes the given members and nothing else. */
export function manifestOf(members: MemberRecord[], changes: Partial<Manifest> = {}): Manifest {
  const xmlMember = members.find(({ kind }) => kind === 'domain_xml')!.name;
  const state = { number: 1, name: null, consistency: 'off' as const, created: CREATED, xmlMember };
  return {
    formatVersion: 1,
    backupId: BACKUP_ID,
    toolVersion: '0.1.0',
    created: CREATED,
    vm: { uuid: VM_ID, name: 'vm' },
    isTemplate: false,
    templateVersion: null,
    template: null,
    incremental: false,
    states: [{ ...state, memoryMember: null, nvram: null, tpm: null }],
    disks: [],
    isos: [],
    luns: [],
    snapshots: [],
    excludedDisks: [],
    members,
    options: {},
    warnings: [],
    fallbackReason: null,
    ...changes,
  };
}

export interface Piece {
  name: string;
  kind?: MemberKind;
  /** A file, or bytes. */
  from: string | Buffer;
}

export interface WriteOptions {
  zstd?: boolean;
  hash?: boolean;
  maxFrames?: number;
  sign?: SignManifest;
}

export const XML = '<domain type="kvm"><name>vm</name></domain>\n';

/** Writes a whole archive of these pieces, an XML and a manifest. */
export async function writeArchive(path: string, pieces: Piece[], options: WriteOptions = {}): Promise<void> {
  const compression = options.zstd === true ? {} : null;
  const hash = options.hash ?? false;
  const { maxFrames, sign } = options;
  const writer = await ArchiveWriter.create({
    ...{ path, backupId: BACKUP_ID, compression, hash, sign, signal },
    ...(maxFrames && { maxFrames }),
  });
  try {
    for (const { name, kind = 'disk', from } of pieces)
      if (typeof from === 'string') await writer.addFile(name, kind, from, { formerPath: from });
      else await writer.addBytes(name, kind, from);
    await writer.addBytes('0001_vm.xml', 'domain_xml', Buffer.from(XML));
    await writer.finish({ stateNumber: 1, manifest: manifestOf });
  } finally {
    await writer.abort();
  }
}

/** The manifest of an archive with states 1..n: disks as `pieces` of kind disk or layer bring them, by id. */
export function growingManifest(before: Manifest, members: MemberRecord[]): Manifest {
  const number = before.states.length + 1;
  const prefix = String(number).padStart(4, '0');
  const xmlMember = members.find(({ name }) => name === `${prefix}_vm.xml`)!.name;
  const sides = { memoryMember: null, nvram: null, tpm: null };
  const state = { number, name: `s${number}`, consistency: 'off' as const, created: CREATED, xmlMember };
  return { ...before, incremental: true, states: [...before.states, { ...state, ...sides }], members };
}

/** Extends an archive by one state of these pieces and an XML; without `finish` the new end is not written. */
export async function appendState(
  path: string,
  pieces: Piece[],
  options: Partial<AppenderOptions> & { tailPath?: string; manifest?: typeof growingManifest } = {},
): Promise<void> {
  const { tailPath = `${path}.tail`, manifest = growingManifest, ...rest } = options;
  const appender = await ArchiveAppender.open({ path, signal, ...rest });
  try {
    const stateNumber = appender.manifest.states.length + 1;
    await appender.begin(tailPath);
    for (const { name, kind = 'layer', from } of pieces)
      if (typeof from === 'string') await appender.addFile(name, kind, from, { formerPath: from });
      else await appender.addBytes(name, kind, from);
    const xml = `${String(stateNumber).padStart(4, '0')}_vm.xml`;
    await appender.addBytes(xml, 'domain_xml', Buffer.from(`${XML}<!-- ${stateNumber} -->`));
    await appender.finish({ stateNumber, manifest: members => manifest(appender.manifest, members) });
  } finally {
    await appender.abort();
  }
}

/** Takes every archive for the same, by nobody's signature. */
export const judgedAs =
  (trust: ArchiveTrust): JudgeArchive =>
  () => ({
    ...{ trust, signer: '', reason: trust === 'foreign' ? 'it is not signed' : '' },
    ...{ byOneNode: trust !== 'foreign', coversContent: false },
  });
