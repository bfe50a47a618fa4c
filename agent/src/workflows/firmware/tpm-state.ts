/**
 * The software TPM's state as one small tar. libvirt keeps it in `<swtpm directory>/<domain uuid>/tpm2/` (or tpm1.2),
 * a few files of some KiB; what else lies there (locks, sockets) is not state.
 */
import { chown, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { removePath, syncDirectoryOf, syncFile } from '@virtkeep/shared/files';
import { KiB, MiB, roundUp } from '@virtkeep/shared/units';
import { Header } from 'tar';

const BLOCK = 512;
const MAX_FILE_BYTES = 4 * MiB;
const MAX_FILES = 32;
/** A version's directory and a file in it; nothing that could lead elsewhere. */
const STATE_NAME = /^tpm(1\.2|2)\/[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;
/** How swtpm names what it writes before it gives it the name of the state (`TMP2-00.permall`). */
const UNFINISHED = 'TMP';
const VERSIONS = ['tpm1.2', 'tpm2'] as const;

/** The state of a domain's TPM as a tar, or null when it has none yet. @throws VirtkeepError io_failed */
export async function packTpmState(swtpmDirectory: string, domainId: string): Promise<Buffer | null> {
  const parts: Buffer[] = [];
  for (const version of VERSIONS) {
    const directory = join(swtpmDirectory, domainId, version);
    for (const file of await filesIn(directory)) {
      const name = `${version}/${file}`;
      // what is being written takes the place of the state when it is whole
      if (!STATE_NAME.test(name) || file.startsWith(UNFINISHED)) continue;
      const data = await readFile(join(directory, file));
      if (data.length > MAX_FILE_BYTES) continue;
      const { uid, gid } = await stat(join(directory, file));
      parts.push(headerOf(name, data.length, uid, gid), padded(data));
    }
  }
  if (parts.length === 0) return null;
  return Buffer.concat([...parts, Buffer.alloc(2 * BLOCK)]);
}

/**
 * Writes the state durably into the domain's directory, which must not exist yet.
 * @throws VirtkeepError archive_damaged for anything that is not such a tar; file_exists; io_failed
 */
export async function unpackTpmState(state: Buffer, swtpmDirectory: string, domainId: string): Promise<void> {
  const files = readTar(state);
  const directory = join(swtpmDirectory, domainId);
  try {
    await mkdir(swtpmDirectory, { recursive: true, mode: 0o711 });
    await mkdir(directory, { mode: 0o711 });
    for (const version of VERSIONS) {
      const own = files.find(({ name }) => name.startsWith(`${version}/`));
      if (!own) continue;
      await mkdir(join(directory, version), { mode: 0o700 });
      await chown(join(directory, version), own.uid, own.gid);
    }
    for (const { name, data, uid, gid } of files) {
      await writeFile(join(directory, name), data, { mode: 0o600, flag: 'wx' });
      await chown(join(directory, name), uid, gid);
    }
    await flushState(directory);
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') throw new VirtkeepError('file_exists', { path: directory });
    throw fromIoError(error, 'writing', directory);
  }
}

/**
 * Puts a state durably in place of the one that the domain has, which stays when there is no room for the other; null: it has
 * none then, and its TPM is made anew.
 * @throws VirtkeepError as `unpackTpmState`
 */
export async function replaceTpmState(
  state: Buffer | null,
  swtpmDirectory: string,
  domainId: string,
): Promise<void> {
  const directory = join(swtpmDirectory, domainId);
  const name = `${domainId}.virtkeep-new`;
  const fresh = join(swtpmDirectory, name);
  // a crash may have left one, with secrets in it, whatever is to be done now
  await removePath(fresh, { recursive: true });
  if (!state) return removePath(directory, { recursive: true });
  try {
    // where nothing was changed nothing is put back, which needs no room; a run that was cut off may not have flushed it
    if ((await packTpmState(swtpmDirectory, domainId))?.equals(state)) return await flushState(directory);
    await unpackTpmState(state, swtpmDirectory, name);
    await rm(directory, { recursive: true, force: true });
    await rename(fresh, directory);
    await syncDirectoryOf(directory);
  } catch (error) {
    await rm(fresh, { recursive: true, force: true });
    throw fromIoError(error, 'replacing', directory);
  }
}

/** Makes a domain's directory and all that is in it survive a power cut. */
async function flushState(directory: string): Promise<void> {
  for (const version of VERSIONS)
    for (const file of await filesIn(join(directory, version)))
      await syncFile(join(directory, version, file));
  for (const path of [join(directory, VERSIONS[0]), directory]) await syncDirectoryOf(path);
}

async function filesIn(directory: string): Promise<string[]> {
  try {
    const entries = await readdir(directory, { withFileTypes: true });
    return entries
      .filter(entry => entry.isFile())
      .map(entry => entry.name)
      .sort();
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw fromIoError(error, 'reading', directory);
  }
}

function headerOf(name: string, size: number, uid: number, gid: number): Buffer {
  const block = Buffer.alloc(BLOCK);
  new Header({ path: name, size, mode: 0o600, type: 'File', mtime: new Date(0), uid, gid }).encode(block);
  return block;
}

function padded(data: Buffer): Buffer {
  return Buffer.concat([data, Buffer.alloc(roundUp(data.length, BLOCK) - data.length)]);
}

interface StateFile {
  name: string;
  data: Buffer;
  uid: number;
  gid: number;
}

function readTar(state: Buffer): StateFile[] {
  const damaged = (reason: string) =>
    new VirtkeepError('archive_damaged', { path: 'the state of the TPM', reason });
  const files: StateFile[] = [];
  for (let at = 0; at + BLOCK <= state.length && state[at] !== 0; ) {
    const header = new Header(state, at);
    const [name, size] = [header.path ?? '', header.size ?? -1];
    if (!header.cksumValid) throw damaged('a header is broken');
    if (header.type !== 'File' || !STATE_NAME.test(name)) throw damaged(`it holds "${name.slice(0, 100)}"`);
    if (size < 0 || size > MAX_FILE_BYTES || at + BLOCK + size > state.length || files.length >= MAX_FILES)
      throw damaged('it is larger than such a state can be');
    const data = state.subarray(at + BLOCK, at + BLOCK + size);
    files.push({ name, data, uid: header.uid ?? 0, gid: header.gid ?? 0 });
    at += BLOCK + roundUp(size, BLOCK);
  }
  if (files.length === 0) throw damaged('it is empty');
  return files;
}

/** Bound of a packed state, for reading it out of an archive. */
export const MAX_TPM_STATE_BYTES = MAX_FILES * (MAX_FILE_BYTES + KiB);
