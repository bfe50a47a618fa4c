/**
 * A directory that virtnbdbackup has written. Its files are opened once and held, like those of other appliances. Nothing of their data is
 * read, only the headers; what they restore to makes `virtnbdrestore`.
 */
import type { FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { nameOf, opendir } from '@virtkeep/shared/beneath';
import { fromIoError } from '@virtkeep/shared/errors';
import { readAt } from '@virtkeep/shared/file-bytes';
import { MiB } from '@virtkeep/shared/units';
import {
  isVirtnbdConfig,
  virtnbdConfigIdent,
  virtnbdDataName,
  virtnbdDescription,
} from '@virtkeep/shared/virtnbd-names';
import { MAX_MEMBERS } from '../bounds.ts';
import { openFile } from '../container/directory.ts';
import { Fault, ofAppliance, shown } from '../fault.ts';
import { readStreamHeader } from './header.ts';
import { statesOf, type VirtnbdDataFile, type VirtnbdRecords, type VirtnbdState } from './states.ts';

export interface VirtnbdBackup {
  /** Of the definition that stands for all of it. */
  readonly path: string;
  /** Oldest first; none: there are no data. */
  readonly states: readonly VirtnbdState[];
  readonly warnings: readonly string[];
  /** Paths by which its files are held. */
  readonly places: readonly string[];
  /** The definition of the VM at a state; of one without its own, the first one. @throws VirtkeepError appliance_invalid, io_failed */
  readDefinition(state: VirtnbdState | undefined): Promise<string>;
  close(): Promise<void>;
}

/** libvirt takes no larger one. */
const MAX_DEFINITION_BYTES = 4 * MiB;
const MAX_NAMES = 50_000;

/**
 * @param path of the definition that stands for it; the other files lie beside it
 * @throws VirtkeepError appliance_invalid, not_a_file, path_outside_pool, io_failed, canceled
 */
export function openVirtnbd(path: string, signal: AbortSignal): Promise<VirtnbdBackup> {
  return ofAppliance(path, async () => {
    const held = new Map<string, FileHandle>();
    const close = async () => {
      for (const file of held.values()) await file.close();
    };
    try {
      const { names, described, warnings } = await namesIn(dirname(path));
      const files: VirtnbdDataFile[] = [];
      for (const name of [basename(path), ...names]) {
        throwIfAborted(signal);
        if (held.has(name)) continue;
        const file = await openFile(join(path, '..', name));
        held.set(name, file);
        const data = await dataFileOf(name, file);
        if (data) files.push(data);
      }
      const definitions = [...held.keys()].flatMap(name => virtnbdConfigIdent(name) ?? []);
      return {
        path,
        states: statesOf(files, { definitions, described }),
        warnings,
        places: [...held.values()].map(nameOf),
        readDefinition: state => ofAppliance(path, () => definition(held, basename(path), state)),
        close,
      };
    } catch (error) {
      await close();
      throw error;
    }
  });
}

type Described = VirtnbdRecords['described'][number];

async function namesIn(
  directory: string,
): Promise<{ names: string[]; described: Described[]; warnings: string[] }> {
  const [names, described, warnings]: [string[], Described[], string[]] = [[], [], []];
  let looked = 0;
  try {
    for await (const { name } of await opendir(directory)) {
      looked += 1;
      if (looked > MAX_NAMES) throw new Fault(`there are more than ${MAX_NAMES} files beside it`);
      const description = virtnbdDescription(name);
      if (description !== undefined) described.push(description);
      else if (virtnbdDataName(name) !== undefined || isVirtnbdConfig(name)) names.push(name);
      else if (name.endsWith('.data.partial'))
        warnings.push(`${shown(name)} is not complete: a backup is being written, or was broken off.`);
    }
  } catch (error) {
    throw error instanceof Fault ? error : fromIoError(error, 'reading', directory);
  }
  if (names.length > MAX_MEMBERS) throw new Fault(`it has more than ${MAX_MEMBERS} files`);
  return { names: names.sort(), described, warnings: warnings.slice(0, 10) };
}

async function dataFileOf(name: string, file: FileHandle): Promise<VirtnbdDataFile | undefined> {
  const parts = virtnbdDataName(name);
  if (!parts) return undefined;
  const { size, mtime } = await file.stat();
  const header = await readStreamHeader(file, parts.target).catch((error: unknown) => {
    throw error instanceof Fault ? new Fault(`${shown(name)}: ${error.message}`) : error;
  });
  return { ...parts, name, path: nameOf(file), sizeBytes: size, changed: mtime, header: header ?? null };
}

async function definition(
  held: ReadonlyMap<string, FileHandle>,
  main: string,
  state: VirtnbdState | undefined,
): Promise<string> {
  const own = state && held.get(`vmconfig.${state.definition}.xml`);
  const file = own ?? held.get(main)!;
  const { size } = await file.stat();
  if (size > MAX_DEFINITION_BYTES) throw new Fault('a definition in it is larger than libvirt takes');
  return (await readAt(file, 0, size)).toString('utf8');
}
