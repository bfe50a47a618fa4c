/**
 * Runs `virtnbdrestore` so that nothing of a foreign directory but the data reaches it. Left to itself it copies files of the directory to
 * wherever the definition in it says, takes options for images from there, goes by the times of files, and takes data that end too early
 * for good. So it gets a directory of ours: a definition without content, the order of the files, and links to those that were looked at,
 * which are held open.
 */
import type { FileHandle } from 'node:fs/promises';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { nameOf } from '@virtkeep/shared/beneath';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { openForeign } from '@virtkeep/shared/foreign-file';
import { isSysAdmin, type ProgramEnd } from '@virtkeep/shared/program';
import { GiB, MiB } from '@virtkeep/shared/units';
import type { Source, VirtnbdDataFile } from '../../appliance/index.ts';
import { containedCommand, NO_SUCH_PROGRAM, runContained } from '../contained-program.ts';
import type { OperationContext } from '../context.ts';
import { PrivateRoom } from './private-room.ts';
import { PATH, requireTool, type Tool, toolMissing } from './tool.ts';

const PROGRAM = 'virtnbdrestore';
const TIMEOUT_MS = 48 * 3_600_000;
const MAX_OUTPUT_BYTES = 4 * MiB;
/** Of one of its processes: a frame of compressed data may unpack into a multiple of itself. */
const MEMORY_BYTES = 2 * GiB;
const OUT = 'out';
/** What it makes options of qcow2 of: an image that is marked until it was closed in order, so that no half of one is taken. */
const IMAGE_OPTIONS = {
  'cluster-size': 65_536,
  'format-specific': { data: { compat: '1.1', 'lazy-refcounts': true } },
};
/** The tool ends before the server of the image is, which writes the tables of the image at last. */
const UNTIL_CLOSED =
  '"$@" || exit; n=0; until qemu-img info -f qcow2 "$IMAGE" >/dev/null; do n=$((n+1)); [ $n -lt 1200 ] || exit 1; sleep 0.1; done';
const MAX_REASON = 600;

const TOOL: Tool = { program: PROGRAM, package: 'virtnbdbackup' };

/** @param path directories in which it is looked for. @throws VirtkeepError tool_missing */
export const requireVirtnbdrestore = (path?: string): Promise<void> => requireTool(TOOL, path);

/** A directory of the operation, beside the new backup. */
export class RestoreRoom {
  readonly #room: PrivateRoom;
  readonly #images: FileHandle[] = [];

  private constructor(room: PrivateRoom) {
    this.#room = room;
  }

  /** Declared first; it goes with the operation. @throws VirtkeepError io_failed, disk_full */
  static async make(context: OperationContext, directory: string): Promise<RestoreRoom> {
    const room = await PrivateRoom.make(context, join(directory, `.virtkeep-${context.id}.virtnbd`));
    try {
      await mkdir(room.at(OUT));
      await writeFile(room.at('vmconfig.xml'), '<domain><os/></domain>\n');
      return new RestoreRoom(room);
    } catch (error) {
      await room.close();
      throw fromIoError(error, 'writing', room.path);
    }
  }

  /**
   * The image of a disk out of its files. It is held open until the room is closed.
   * @throws VirtkeepError tool_missing, foreign_disk_invalid, disk_full, timed_out, io_failed, canceled
   */
  async restore(target: string, chain: readonly VirtnbdDataFile[], signal: AbortSignal): Promise<Source> {
    const names = chain.map((_, index) => `${target}.${index}.${index === 0 ? 'full' : 'inc'}.data`);
    try {
      for (const [index, name] of names.entries()) await symlink(chain[index]!.path, this.#room.at(name));
      await writeFile(this.#room.at(`${target}.qcow.json`), JSON.stringify(IMAGE_OPTIONS));
    } catch (error) {
      throw fromIoError(error, 'writing', this.#room.path);
    }
    await this.#run(target, { names, sizeBytes: chain[0]!.header!.virtualSizeBytes }, signal);
    try {
      const file = await openForeign(this.#room.at(join(OUT, target)));
      this.#images.push(file);
      const { size } = await file.stat();
      return { path: nameOf(file), offset: 0, sizeBytes: size, name: target };
    } catch (error) {
      throw fromIoError(error, 'opening', join(this.#room.path, OUT, target));
    }
  }

  async #run(
    target: string,
    { names, sizeBytes }: { names: readonly string[]; sizeBytes: number },
    signal: AbortSignal,
  ): Promise<void> {
    const failed = (reason: string, cause?: unknown) =>
      new VirtkeepError('foreign_disk_invalid', { path: target, reason }, { cause });
    const argv = restoreCommand(this.#room.name, target, { names, sizeBytes });
    const how = { name: 'virtnbdrestore', hasOwnTmp: false, timeoutMs: TIMEOUT_MS };
    const command = containedCommand(argv, { ...how, isPrivileged: await isSysAdmin() });
    const end = await runContained(command, {
      signal,
      operation: PROGRAM,
      timeoutMs: TIMEOUT_MS,
      maxOutputBytes: MAX_OUTPUT_BYTES,
      failed,
    });
    if (end.code === 0) return;
    if (end.code === NO_SUCH_PROGRAM) throw toolMissing(TOOL);
    // a server of an image that finds no room is told nobody but its own log
    if (/No space left|ENOSPC/.test(end.stderr) || (await this.#room.isFull()))
      throw new VirtkeepError('disk_full', { path: this.#room.path });
    throw failed(`virtnbdrestore failed: ${reasonOfEnd(end)}`);
  }

  /** What is in it goes with the operation. */
  async close(): Promise<void> {
    for (const image of this.#images) await image.close();
    await this.#room.close();
  }
}

/**
 * Relative paths are those of the directory, which is given by a name that stays its own. `test:` is libvirt's driver without a daemon: the
 * tool opens a connection always.
 */
export function restoreCommand(
  directory: string,
  target: string,
  { names, sizeBytes }: { names: readonly string[]; sizeBytes: number },
): string[] {
  const limits = [
    `--as=${MEMORY_BYTES}`,
    `--fsize=${sizeBytes + Math.ceil(sizeBytes / 16) + 64 * MiB}`,
    '--core=0',
  ];
  return [
    ...['env', '-i', `--chdir=${directory}`, `PATH=${PATH}`, 'LC_ALL=C', 'HOME=.', 'TMPDIR=.'],
    ...['PYTHONDONTWRITEBYTECODE=1', `IMAGE=${OUT}/${target}`],
    ...['prlimit', ...limits, 'sh', '-c', UNTIL_CLOSED, 'sh', PROGRAM, '--noprogress', '--action=restore'],
    ...['--input=.', `--output=${OUT}`, '--uri=test:///default', '--logfile=log'],
    // it must be absolute, and a socket's name is short
    `--socketfile=/proc/self/cwd/${target}`,
    // the last file of the order is the last one anyway; without it a backup of the mode copy ends in an error
    ...['--until=-', `--sequence=${names.join(',')}`],
  ];
}

/** The lines of its log that tell of errors, else its last ones. */
function reasonOfEnd({ stderr, code, signalName }: ProgramEnd): string {
  const lines = stderr.split('\n').filter(line => line.trim() !== '');
  const told = lines
    .filter(line => / (ERROR|CRITICAL) /.test(line))
    .map(line => line.replace(/^.*\[MainThread\]: /, ''));
  // what ends otherwise than it expects it asserts, and names nothing
  const [last = ''] = lines.slice(-1);
  const end = last.startsWith('AssertionError') ? 'its data are damaged, or end too early' : last;
  const text = told.length > 0 ? told.join('; ') : end;
  return text.slice(-MAX_REASON) || signalName || `exit code ${code}`;
}
