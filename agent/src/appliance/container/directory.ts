import type { FileHandle } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { inPoolDirectory, nameOf } from '@virtkeep/shared/beneath';
import { errnoOf, fromIoError } from '@virtkeep/shared/errors';
import { openForeign } from '@virtkeep/shared/foreign-file';
import { nameFault } from '../../archive/index.ts';
import { MAX_MEMBERS } from '../bounds.ts';
import { rangeOf } from '../bytes.ts';
import { Fault } from '../fault.ts';
import type { Container, Member, Take } from './container.ts';

/** Opens a regular file, also where others may write. @throws VirtkeepError not_a_file, path_outside_pool, io_failed */
export const openFile = (path: string): Promise<FileHandle> =>
  inPoolDirectory(path, directory => openForeign(join(directory, basename(path)))).catch(error => {
    throw fromIoError(error, 'opening', path);
  });

/**
 * The files beside a descriptor. Each is opened once and held, so that what was looked at is what a program gets later, whatever its
 * name means by then.
 */
export class DirectoryContainer implements Container {
  readonly #descriptorPath: string;
  readonly #held = new Map<string, { member: Member; file: FileHandle }>();

  private constructor(descriptorPath: string) {
    this.#descriptorPath = descriptorPath;
  }

  static async open(descriptorPath: string, file: FileHandle): Promise<DirectoryContainer> {
    const container = new DirectoryContainer(descriptorPath);
    await container.#hold(basename(descriptorPath), file);
    return container;
  }

  get members(): readonly Member[] {
    return [...this.#held.values()].map(({ member }) => member);
  }

  async find(name: string): Promise<Member | undefined> {
    const held = this.#held.get(name);
    if (held !== undefined) return held.member;
    if (nameFault(name) !== undefined) return undefined;
    if (this.#held.size >= MAX_MEMBERS) throw new Fault(`it has more than ${MAX_MEMBERS} members`);
    const path = join(this.#descriptorPath, '..', name);
    const file = await openFile(path).catch(error => {
      if (errnoOf(error.cause) === 'ENOENT') return undefined;
      throw error;
    });
    return file && (await this.#hold(name, file));
  }

  async #hold(name: string, file: FileHandle): Promise<Member> {
    const { size } = await file.stat();
    const member = { name, sizeBytes: size, place: { path: nameOf(file), offset: 0 } };
    this.#held.set(name, { member, file });
    return member;
  }

  async read(names: ReadonlySet<string>, take: Take, signal: AbortSignal): Promise<void> {
    for (const { member, file } of [...this.#held.values()])
      if (names.has(member.name)) await take(member, rangeOf(file, 0, member.sizeBytes, signal));
  }

  async close(): Promise<void> {
    for (const { file } of this.#held.values()) await file.close();
    this.#held.clear();
  }
}
