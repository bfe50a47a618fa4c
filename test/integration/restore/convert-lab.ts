// Appliances for the tests that convert them, and an agent that does so.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { newId } from '@virtkeep/shared/ids';
import { tar, tarMember } from '../../../agent/src/appliance/test-kit.ts';
import {
  cpus,
  descriptor,
  disk,
  item,
  memory,
  nic,
  scsi,
  system,
  VMDK,
} from '../../../agent/src/ovf/test-kit.ts';
import { type AgentAlone, lostAnswer } from '../../e2e/agent-alone.ts';

export interface DiskOf {
  href: string;
  bytes: number;
  /** Attributes of the file. */
  more?: string;
  format?: string;
}

export interface OvfOf {
  settings?: string;
  /** Files that are in a CD-ROM drive each. */
  images?: { href: string; more?: string }[];
  /** An item, by its id 3, on which the disks hang. */
  controller?: string;
}

/** A descriptor of one VM with those disks. */
export function ovf(
  name: string,
  disks: DiskOf[],
  { settings = '', images = [], controller = scsi(3, 'VirtualSCSI') }: OvfOf = {},
): string {
  const file = (id: string, { href, more = '' }: { href: string; more?: string }) =>
    `<File ovf:id="${id}" ovf:href="${href}" ${more}/>`;
  return descriptor({
    files:
      disks.map((one, index) => file(`f${index}`, one)).join('') +
      images.map((one, index) => file(`i${index}`, one)).join(''),
    disks: disks
      .map(
        ({ bytes, format = VMDK }, index) =>
          `<Disk ovf:diskId="d${index}" ovf:fileRef="f${index}" ovf:capacity="${bytes}" ovf:format="${format}"/>`,
      )
      .join(''),
    content: system({
      name,
      settings,
      items:
        cpus(1) +
        memory(256) +
        controller +
        disks.map((_, index) => disk(4 + index, 3, index, `ovf:/disk/d${index}`)).join('') +
        images.map((_, index) => drive(20 + index, index)).join('') +
        nic(9, 'E1000'),
    }),
  });
}

const drive = (id: number, image: number) =>
  item(15, { InstanceID: id, Parent: 3, AddressOnParent: 8 + image, HostResource: `ovf:/file/i${image}` });

const sha256 = (bytes: Buffer | string) => createHash('sha256').update(bytes).digest('hex');
export type Files = Record<string, Buffer | string>;

export const manifestOf = (files: Files): string =>
  Object.entries(files)
    .map(([name, bytes]) => `SHA256(${name})= ${sha256(bytes)}\n`)
    .join('');

export const ova = (files: Files): Buffer =>
  tar(...Object.entries(files).map(([name, bytes]) => tarMember(name, bytes)));

/** The backups of the agent's second pool, into which foreign files are put and where backups are made. */
export class ConvertLab {
  readonly alone: AgentAlone;
  /** Names that the tests put into the directory. */
  readonly #given = new Set<string>();

  constructor(alone: AgentAlone) {
    this.alone = alone;
    mkdirSync(this.directory, { recursive: true });
  }

  get directory(): string {
    return join(this.alone.world.node.pool(1).path, 'backups');
  }

  /** Names of what was made. */
  made(): string[] {
    return readdirSync(this.directory).filter(name => !this.#given.has(name));
  }

  clear(): void {
    for (const name of this.made()) rmSync(join(this.directory, name));
  }

  /** Something that a test has put there itself. */
  note(name: string): void {
    this.#given.add(name);
  }

  /** @returns its path */
  put(name: string, bytes: Buffer | string): string {
    this.#given.add(name);
    const path = join(this.directory, name);
    writeFileSync(path, bytes);
    return path;
  }

  /** An image of those bytes. */
  imageOf(bytes: Buffer, ...format: string[]): Buffer {
    const raw = join(this.alone.world.dir, 'content');
    writeFileSync(raw, bytes);
    execFileSync('qemu-img', ['convert', '-f', 'raw', '-O', ...format, raw, `${raw}.image`]);
    return readFileSync(`${raw}.image`);
  }

  streamOf(bytes: Buffer): Buffer {
    return this.imageOf(bytes, 'vmdk', '-o', 'subformat=streamOptimized');
  }

  /** The bytes of an image as a guest sees them. */
  rawOf(path: string): Buffer {
    const raw = join(this.alone.world.dir, 'raw');
    execFileSync('qemu-img', ['convert', '-O', 'raw', path, raw]);
    return readFileSync(raw);
  }

  /** @returns id of the operation */
  async convert(filename: string, request: object = {}): Promise<string> {
    const operationId = newId();
    const file = { poolId: this.alone.world.node.pool(1).uuid, filename };
    await this.alone.backups.convert({ operationId, fileId: newId(), file, ...request }).catch(lostAnswer);
    return operationId;
  }
}
