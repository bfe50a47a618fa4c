/** New files of an operation: images, memory files, UEFI variables. */
import { type FileHandle, mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { type FileMark, type MakeOptions, makeOwnFile } from '../images/index.ts';
import type { OperationContext } from './context.ts';
import type { EffectHandle } from './effect.ts';
import { openUnfinished } from './files/unfinished.ts';

/** So often somebody else may take an empty directory away that a file was about to be made in. */
const TRIES = 5;

/**
 * Makes an empty file that must not exist yet, with what is missing of its directory; both are declared before. What is to be
 * in the file is written into it: one that takes its place would not be known as the operation's own.
 * @param keep it goes only when the operation fails
 * @param options stack: of images that are going to stand on one another, the lowest first
 * @throws VirtkeepError file_exists, io_failed, disk_full, path_outside_pool
 */
export async function makeNewFile(
  context: OperationContext,
  path: string,
  keep: boolean,
  options: MakeOptions = {},
): Promise<{ handle: EffectHandle; mark: FileMark }> {
  if (await exists(path)) throw new VirtkeepError('file_exists', { path });
  const when = keep ? 'failure' : 'always';
  for (let tried = 1; ; tried += 1) {
    await makeDirectoryOf(context, path);
    try {
      return await makeOwnFile(path, effect => context.effects.begin(effect, when), options);
    } catch (error) {
      if (tried === TRIES || (await exists(dirname(path)))) throw error;
    }
  }
}

/**
 * The same, held open: whoever may write to the directory may give its name to another file, or to a link, before it is written. Programs are
 * given `nameOf(file)`, which stays this very file's. The caller closes it.
 * @throws VirtkeepError as `makeNewFile`
 */
export async function makeHeldFile(
  context: OperationContext,
  path: string,
  keep: boolean,
  options: MakeOptions = {},
): Promise<{ handle: EffectHandle; file: FileHandle }> {
  const { handle, mark } = await makeNewFile(context, path, keep, options);
  return { handle, file: await openUnfinished({ path, mark }) };
}

async function makeDirectoryOf(context: OperationContext, path: string): Promise<void> {
  let missing: string | undefined;
  for (let directory = dirname(path); !(await exists(directory)); directory = dirname(directory))
    missing = directory;
  if (missing === undefined) return;
  context.effects.begin({ type: 'directory', path: missing }, 'failure');
  try {
    await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  } catch (error) {
    throw fromIoError(error, 'making', dirname(path));
  }
}
