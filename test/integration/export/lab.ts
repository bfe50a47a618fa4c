// VMs that are exported, and what is asked of what came of it.
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { expect } from '@jest/globals';
import type { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { KiB, MiB } from '@virtkeep/shared/units';
import { applianceOf, readOvf, vmOfDomain } from '../../../agent/src/ovf/index.ts';
import { faultsOf } from '../../../agent/src/ovf/strict-kit.ts';
import { AgentAlone, fileOf, lostAnswer } from '../../e2e/agent-alone.ts';
import { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';

/** A disk of a definition, and the image that is made for it. */
export interface TestDisk {
  target: string;
  bus: string;
  format: 'qcow2' | 'raw';
  sizeBytes: number;
}

export class ExportLab {
  readonly alone: AgentAlone;
  #images = 0;

  constructor(alone: AgentAlone) {
    this.alone = alone;
  }

  static async start(): Promise<ExportLab> {
    const lab = new ExportLab(await AgentAlone.start());
    mkdirSync(lab.directory, { recursive: true });
    return lab;
  }

  get directory(): string {
    return join(this.alone.world.node.pool(1).path, 'backups');
  }

  /** An image with data, a hole, and data again up to its end. @returns its path */
  async image({ format, sizeBytes }: Pick<TestDisk, 'format' | 'sizeBytes'>): Promise<string> {
    this.#images += 1;
    const path = join(this.alone.world.node.pool(0).path, `image${this.#images}.${format}`);
    const raw = `${path}.bytes`;
    const bytes = Buffer.alloc(sizeBytes);
    randomBytes(Math.min(MiB, sizeBytes)).copy(bytes);
    randomBytes(100 * KiB).copy(bytes, sizeBytes - 100 * KiB);
    writeFileSync(raw, bytes);
    await run(['qemu-img', 'convert', '-f', 'raw', '-O', format, raw, path]);
    rmSync(raw);
    return path;
  }

  async define(xml: string): Promise<Guest> {
    const path = join(this.alone.world.dir, 'definition.xml');
    writeFileSync(path, xml);
    await this.alone.world.node.virsh('define', path);
    return new Guest(this.alone.world.node, /<name>(.*?)<\/name>/.exec(xml)![1]!);
  }

  /** @returns the name of the archive */
  async backup(guest: Guest, request: object = {}): Promise<string> {
    return (await this.backedUp(guest, request)).filename;
  }

  async backedUp(guest: Guest, request: object): Promise<{ filename: string; id: string }> {
    const { file } = resultOf(await this.alone.heard(await this.alone.startBackup(guest, request)), 'backup');
    return file!;
  }

  async startExport(filename: string, request: object): Promise<string> {
    const operationId = newId();
    const file = { poolId: this.alone.world.node.pool(1).uuid, filename };
    await this.alone.backups.export({ operationId, fileId: newId(), file, ...request }).catch(lostAnswer);
    return operationId;
  }

  async export(filename: string, request: object): Promise<Exported> {
    const operation = await this.alone.heard(await this.startExport(filename, request));
    const { file, path, files } = resultOf(operation, 'exportBackup');
    expect(file).toMatchObject({ path: files[0], poolId: this.alone.world.node.pool(1).uuid });
    for (const one of files) expect(existsSync(one)).toBe(true);
    return { operation, filename: file!.filename, path, files };
  }

  /** A VM of what was exported: a backup out of it, and that restored. */
  async back(
    { filename }: Exported,
    request: object = {},
  ): Promise<{ guest: Guest; paths: Map<string, string> }> {
    const operationId = newId();
    const file = { poolId: this.alone.world.node.pool(1).uuid, filename };
    await this.alone.backups.convert({ operationId, fileId: newId(), file, ...request });
    const archive = fileOf(await this.alone.heard(operationId));
    const restore = await this.alone.startRestore(archive.filename, {
      domainId: newId(),
      allowForeign: true,
    });
    const { name, disks } = resultOf(await this.alone.heard(restore), 'restore');
    rmSync(archive.path);
    return {
      guest: new Guest(this.alone.world.node, name),
      paths: new Map(disks.map(({ targetDev, path }) => [targetDev, path])),
    };
  }

  async remove(guest: Guest, paths: Iterable<string> = []): Promise<void> {
    if ((await guest.state()) !== 'shut off') await guest.destroy();
    await this.alone.world.node.virsh('undefine', guest.name, '--nvram', '--tpm', '--snapshots-metadata');
    for (const path of paths) rmSync(path);
  }

  /** What lies among the backups. */
  files(): string[] {
    return readdirSync(this.directory, { recursive: true }).map(String).sort();
  }

  clear(keep: readonly string[] = []): void {
    for (const name of readdirSync(this.directory))
      if (!keep.includes(name)) rmSync(join(this.directory, name), { recursive: true });
  }
}

export interface Exported {
  operation: Operation;
  filename: string;
  path: string;
  files: string[];
}

/** The files of a package by their names; an OVA is unpacked by tar. */
export async function unpacked({ path, files }: Exported, work: string): Promise<Map<string, string>> {
  if (!path.endsWith('.ova')) return new Map(files.map(file => [basename(file), file]));
  rmSync(work, { recursive: true, force: true });
  mkdirSync(work);
  const { stdout } = await run(['tar', '-xvf', path, '-C', work]);
  return new Map(
    stdout
      .trim()
      .split('\n')
      .map(name => [name, join(work, name)]),
  );
}

/** Order of files, manifest, and what a strict reader of the descriptor finds; nothing. */
export function expectStrict(files: ReadonlyMap<string, string>): string {
  const names = [...files.keys()];
  expect(names[0]).toMatch(/\.ovf$/);
  expect(names[1]).toBe(names[0]!.replace(/ovf$/, 'mf'));
  const text = readFileSync(files.get(names[0]!)!, 'utf8');
  expect(faultsOf(text)).toEqual([]);
  const hrefs = [...text.matchAll(/ovf:href='([^']+)'/g)].map(([, href]) => href!);
  expect(names.slice(2)).toEqual(hrefs);
  const lines = readFileSync(files.get(names[1]!)!, 'utf8').trim().split('\n');
  const sums = [names[0]!, ...hrefs].map(name => {
    const hash = createHash('sha256')
      .update(readFileSync(files.get(name)!))
      .digest('hex');
    return `SHA256(${name})= ${hash}`;
  });
  expect(lines).toEqual(sums);
  const sizes = [...text.matchAll(/ovf:size='(\d+)'/g)].map(([, size]) => Number(size));
  expect(sizes).toEqual(hrefs.map(href => readFileSync(files.get(href)!).length));
  return text;
}

export async function expectSame(a: string, formatA: string, b: string, formatB: string): Promise<void> {
  const { stdout } = await run(['qemu-img', 'compare', '-U', '-f', formatA, '-F', formatB, a, b]);
  expect(stdout).toContain('Images are identical');
}

/** What OVF carries of a definition; addresses and networks are those of the node. */
export function carried(xml: string, disks: readonly string[]) {
  const { vm } = vmOfDomain(xml, { disks: new Set(disks), images: new Set() }, 'it');
  const { nics, drives, name: _, ...rest } = vm;
  return {
    ...rest,
    serialPorts: Math.max(1, vm.serialPorts),
    video: true,
    nics: nics.map(({ subType }) => subType),
    drives: drives.map(({ device }) => device).sort(),
  };
}

export const applianceIn = (text: string) => applianceOf(readOvf(new TextEncoder().encode(text), 'it.ovf'));
