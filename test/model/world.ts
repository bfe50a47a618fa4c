/** The world of a story: a node with pool, directories of libvirt and journal, and what is to be read in its images. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import { openArchive } from '../../agent/src/archive/index.ts';
import { judgedAs } from '../../agent/src/archive/test-kit.ts';
import { Claims } from '../../agent/src/claims.ts';
import type { OtherNodes } from '../../agent/src/other-nodes.ts';
import type { PoolRecord } from '../../agent/src/pools/index.ts';
import type { Hold } from '../../agent/src/workflows/context.ts';
import type { WorkflowDependencies } from '../../agent/src/workflows/dependencies.ts';
import { ZfsDriver } from '../../agent/src/zfs/index.ts';
import { run } from '../lab/run.ts';
import { RunOfAgent } from './run-of-agent.ts';
import { ScriptedLibvirt } from './scripted-libvirt.ts';

const QEMU_IMG = '/usr/bin/qemu-img';
/** Size of each disk, bytes. */
const DISK_BYTES = 256 * 1024;
const BLOCK_BYTES = 4096;
const IMPATIENT_MS = 1_000;

const ignore = () => {};
export const silent = {
  ...{ error: ignore, warn: ignore, info: ignore, debug: ignore, child: () => silent },
} as unknown as Logger;

/** A controller that knows of no other node's use. */
const NOBODY_ELSE: OtherNodes = { whoUses: async things => things.map(() => ({ kind: 'unused' })) };

/** Of a workflow that has the world for itself: what it holds is its own whatever happens. */
export const ALONE: Hold = { has: () => true, loosen: ignore, renew: () => RunOfAgent.reach('hold renewed') };

export class World {
  // in memory: the model is about order, and not about what a disk has kept
  readonly root = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'vk-undo-'));
  readonly pool = join(this.root, 'pool');
  readonly backups = join(this.pool, 'backups');
  readonly nvram = join(this.root, 'nvram');
  readonly swtpm = join(this.root, 'swtpm');
  readonly scratch = join(this.root, 'scratch');
  readonly scripted = new ScriptedLibvirt();
  /** What undo told the user. */
  readonly warnings: string[] = [];
  /**
   * What an image stands on whose own header does not say it, by its path: what is read there, and the chain in QEMU's words.
   */
  readonly unfinished = new Map<string, { bytes: Buffer; chain: object }>();
  readonly claims = new Claims();
  /** What waits long for something to go well waits shortly. */
  isImpatient = false;
  readonly #timeout = AbortSignal.timeout;
  readonly #path = process.env.PATH;

  constructor() {
    for (const directory of [this.pool, this.nvram, this.swtpm, join(this.root, 'bin')]) mkdirSync(directory);
    const wrapper = join(this.root, 'bin/qemu-img');
    writeFileSync(
      wrapper,
      wrapperOf(join(this.root, 'qemu-img-fails'), join(this.root, 'qemu-img-fails-at')),
    );
    chmodSync(wrapper, 0o755);
    process.env.PATH = `${join(this.root, 'bin')}:${this.#path}`;
    this.scripted.reach = RunOfAgent.reach;
    this.scripted.reachInside = RunOfAgent.reachOutside;
    AbortSignal.timeout = ms =>
      this.#timeout.call(AbortSignal, this.isImpatient ? Math.min(ms, IMPATIENT_MS) : ms);
  }

  get dependencies(): WorkflowDependencies {
    return {
      libvirt: () => this.scripted.libvirt,
      pools: async () => [this.poolRecord],
      filesChanged: ignore,
      log: silent,
      version: '1',
      nodeName: 'node',
      zfs: new ZfsDriver(),
      otherNodes: NOBODY_ELSE,
      claims: this.claims,
      pendingEffects: () => [],
      judge: judgedAs('own'),
      nvramDirectory: this.nvram,
      swtpmDirectory: this.swtpm,
      saveDirectory: join(this.root, 'save'),
      mergeBandwidthMiB: 0,
      compressionWorkers: 1,
      ...(this.hooks && { hooks: this.hooks }),
    } as unknown as WorkflowDependencies;
  }

  /** The node's hooks, where a story has some. */
  hooks: WorkflowDependencies['hooks'];

  readonly poolRecord: PoolRecord = {
    ...{ id: newId(), name: 'pool', kind: 'local', path: this.pool, hasDirectory: true, active: true },
    ...{ mounted: true, capacity: 2 ** 40, allocation: 0, available: 2 ** 40, readonly: false },
    ...{ outside: false, shared: false, description: '', isBase: true },
  };

  /** While it is set, qemu-img fails, whatever it is asked. */
  set qemuImgFails(fails: boolean) {
    this.#flag('qemu-img-fails', fails ? '' : null);
  }

  get qemuImgFails(): boolean {
    return existsSync(join(this.root, 'qemu-img-fails'));
  }

  /** The call of qemu-img that fails, counted from now on; null: none. */
  set qemuImgFailsAt(at: number | null) {
    this.#flag('qemu-img-fails-at', at === null ? null : `${at}\n`);
  }

  #flag(name: string, text: string | null): void {
    const path = join(this.root, name);
    if (text === null) rmSync(path, { force: true });
    else writeFileSync(path, text);
  }

  async disk(name: string): Promise<string> {
    const path = join(this.pool, name);
    await this.blank(path);
    return path;
  }

  async blank(path: string): Promise<void> {
    await run([QEMU_IMG, 'create', '-q', '-f', 'qcow2', path, String(DISK_BYTES)]);
  }

  /** A guest writes: 4 KiB of one byte at a block. */
  async write(path: string, block: number, byte: number): Promise<void> {
    const at = `${block * BLOCK_BYTES} ${BLOCK_BYTES}`;
    const isUnfinished = backingOf(readFileSync(path))?.startsWith('json:') ?? false;
    const { chain } = (isUnfinished && this.unfinished.get(path)) || {};
    const whole = { driver: 'qcow2', file: { driver: 'file', filename: path }, backing: chain };
    // the running VM has its chain from its definition
    const image = chain ? [`json:${JSON.stringify(whole)}`] : ['-f', formatOf(path), path];
    await run(['qemu-io', '-c', `write -q -P ${byte} ${at}`, ...image]);
  }

  /** What a guest reads from a file with all below it, as a short hash. */
  async content(path: string): Promise<string> {
    return hashOf(this.#guestBytes(path));
  }

  /** The same, as bytes. */
  bytes(path: string): Buffer {
    return this.#guestBytes(path);
  }

  /** Reads a small image with its layers, without a process for each of the many looks. */
  #guestBytes(path: string): Buffer {
    const file = readFileSync(path);
    const name = backingOf(file);
    if (name === null) return layerBytes(file, Buffer.alloc(DISK_BYTES));
    const below = name.startsWith('json:') ? this.unfinished.get(path)!.bytes : this.#guestBytes(name);
    return layerBytes(file, below);
  }

  /** What an image's header names below it; null for nothing. */
  backingOf(path: string): string | null {
    return backingOf(readFileSync(path));
  }

  /** What the disks of a state of an archive read as, in their order. @param state default: the newest */
  async archived(path: string, state?: number): Promise<string[]> {
    const archive = await openArchive(path, AbortSignal.timeout(60_000));
    const manifest = state === undefined ? archive.manifest : await archive.manifestOfState(state);
    await archive.close();
    const tar = path.endsWith('.zst')
      ? execFileSync('zstd', ['-dcq', path], { maxBuffer: 2 ** 28 })
      : readFileSync(path);
    const places = new Map(archive.members.map(member => [member.name, member]));
    return manifest!.disks.map(({ layers }) => {
      const blank: Buffer = Buffer.alloc(DISK_BYTES);
      return hashOf(
        layers.reduce((below, { member }) => layerBytes(bytesOf(tar, places.get(member)!), below), blank),
      );
    });
  }

  /** Files of the world, without journal and helpers. */
  files(): string[] {
    return ['pool', 'nvram', 'swtpm', 'scratch']
      .flatMap(name => {
        const directory = join(this.root, name);
        if (!existsSync(directory)) return [];
        return readdirSync(directory, { recursive: true, withFileTypes: true })
          .filter(entry => !entry.isDirectory())
          .map(entry => relative(this.root, join(entry.parentPath, entry.name)));
      })
      .sort();
  }

  remove(): void {
    AbortSignal.timeout = this.#timeout;
    process.env.PATH = this.#path;
    rmSync(this.root, { recursive: true, force: true });
  }
}

const wrapperOf = (fails: string, failsAt: string): string => `#!/bin/sh
[ -e ${fails} ] && { echo injected >&2; exit 1; }
if [ -e ${failsAt} ]; then
  read -r left < ${failsAt}
  if [ "$left" -eq 0 ]; then rm ${failsAt}; echo injected >&2; exit 1; fi
  echo $((left - 1)) > ${failsAt}
fi
exec ${QEMU_IMG} "$@"
`;

/** What a disk reads as after these writes, as a short hash. */
export function expectedContent(writes: readonly (readonly [block: number, byte: number])[]): string {
  const bytes = Buffer.alloc(DISK_BYTES);
  for (const [block, byte] of writes) bytes.fill(byte, block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES);
  return hashOf(bytes);
}

const hashOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex').slice(0, 16);

const isQcow2 = (file: Buffer): boolean => file.subarray(0, 4).toString('latin1') === 'QFI\xfb';
const formatOf = (path: string): string => (isQcow2(readFileSync(path)) ? 'qcow2' : 'raw');
/** What the header names below; null for nothing. */
function backingOf(file: Buffer): string | null {
  if (!isQcow2(file)) return null;
  const offset = Number(file.readBigUInt64BE(8));
  const name = file.subarray(offset, offset + file.readUInt32BE(16)).toString();
  return offset > 0 && name !== '' ? name : null;
}

const bytesOf = (tar: Buffer, { dataOffset, sizeBytes }: { dataOffset: number; sizeBytes: number }): Buffer =>
  tar.subarray(dataOffset, dataOffset + sizeBytes);

/** What is read through one layer upon what is below it. */
function layerBytes(file: Buffer, below: Buffer): Buffer {
  const bytes = Buffer.from(below);
  if (!isQcow2(file)) {
    file.copy(bytes);
    return bytes;
  }
  const clusterBytes = 1 << file.readUInt32BE(20);
  const offset = (at: bigint) => Number(at & 0x00fffffffffffe00n);
  const table = offset(file.readBigUInt64BE(Number(file.readBigUInt64BE(40))));
  for (let index = 0; table > 0 && index * clusterBytes < DISK_BYTES; index += 1) {
    const entry = file.readBigUInt64BE(table + index * 8);
    const at = index * clusterBytes;
    if (entry & 1n) bytes.fill(0, at, at + clusterBytes);
    else if (offset(entry) > 0) file.copy(bytes, at, offset(entry), offset(entry) + clusterBytes);
  }
  return bytes;
}
