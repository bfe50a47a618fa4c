import type { FileHandle } from 'node:fs/promises';
import { basename } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError } from '@virtkeep/shared/errors';
import { readAt } from '@virtkeep/shared/file-bytes';
import { MAX_CERTIFICATE_BYTES, MAX_DESCRIPTOR_BYTES, MAX_MANIFEST_BYTES, mostUnpacked } from './bounds.ts';
import { collected, limited, rangeOf } from './bytes.ts';
import type { Container } from './container/container.ts';
import { DirectoryContainer, openFile } from './container/directory.ts';
import { PackedTar, PlainTar } from './container/tar.ts';
import { gunzipped, unxzed } from './container/unpacked.ts';
import { openZip } from './container/zip.ts';
import { Fault, ofAppliance, shown } from './fault.ts';
import { type ParsedManifest, parseManifest } from './manifest.ts';

/** How an OVA is packed; what its bytes say, not its name. */
export type Packing = 'none' | 'gzip' | 'xz' | 'zip';

/** A small file of an appliance. */
export interface Text {
  name: string;
  bytes: Buffer;
}

/** An opened appliance; its files are held open until it is closed. */
export interface AppliancePackage extends Container {
  readonly path: string;
  /** `ovf`: a descriptor with its files beside it; `ova`: all in one file. */
  readonly kind: 'ovf' | 'ova';
  readonly packing: Packing;
  readonly descriptor: Text;
  readonly manifest: (Text & ParsedManifest) | null;
  readonly certificate: Text | null;
}

/**
 * Opens an appliance and reads its descriptor, manifest and certificate. Of one that is compressed this unpacks everything once, to
 * nowhere.
 * @param path a `.ovf` in any case is a descriptor, anything else an OVA
 * @param onBytes told how many bytes of one packed with gzip or xz were unpacked to find its members
 * @throws VirtkeepError appliance_invalid, not_a_file, path_outside_pool, io_failed, canceled
 */
export function openAppliance(
  path: string,
  signal: AbortSignal,
  onBytes?: (doneBytes: number) => void,
): Promise<AppliancePackage> {
  return ofAppliance(path, async () => {
    throwIfAborted(signal);
    const file = await openFile(path);
    try {
      return await readAppliance({ path, file, onBytes }, signal);
    } catch (error) {
      // a container that was made closes it, too: harmless when repeated
      await file.close().catch(() => {});
      throw isSystemError(error) ? fromIoError(error, 'reading', path) : error;
    }
  });
}

/**
 * Whether an OVA must be unpacked to be read, by its first bytes; whole and right it need not be.
 * @throws VirtkeepError not_a_file, path_outside_pool, io_failed
 */
export async function isPackedAppliance(path: string): Promise<boolean> {
  const file = await openFile(path);
  try {
    return packingOf(await readAt(file, 0, MAGIC_BYTES)) !== 'none';
  } catch (error) {
    throw fromIoError(error, 'reading', path);
  } finally {
    await file.close();
  }
}

const isSystemError = (error: unknown): boolean =>
  typeof error === 'object' && error !== null && 'syscall' in error;

interface Opening {
  path: string;
  file: FileHandle;
  onBytes: ((doneBytes: number) => void) | undefined;
}

async function readAppliance(opening: Opening, signal: AbortSignal): Promise<AppliancePackage> {
  const { path, file } = opening;
  const kind = /\.ovf$/i.test(path) ? 'ovf' : 'ova';
  const packing = kind === 'ovf' ? 'none' : packingOf(await readAt(file, 0, MAGIC_BYTES));
  const container =
    kind === 'ovf' ? await DirectoryContainer.open(path, file) : await openPacked(packing, opening, signal);
  try {
    const name = kind === 'ovf' ? basename(path) : descriptorAmong(container.members.map(one => one.name));
    const read = (wanted: string, mostBytes: number) => textOf(container, wanted, mostBytes, signal);
    const beside = async (ending: string, mostBytes: number) =>
      (await read(name.replace(/ovf$/i, ending), mostBytes)) ??
      (await read(name.replace(/ovf$/i, ending.toUpperCase()), mostBytes));
    const descriptor = (await read(name, MAX_DESCRIPTOR_BYTES))!;
    if (descriptor.bytes.length === 0) throw new Fault(`its descriptor ${shown(name)} is empty`);
    const manifest = await beside('mf', MAX_MANIFEST_BYTES);
    return {
      path,
      kind,
      packing,
      descriptor,
      manifest: manifest && { ...manifest, ...parseManifest(manifest.bytes.toString('utf8')) },
      certificate: await beside('cert', MAX_CERTIFICATE_BYTES),
      get members() {
        return container.members;
      },
      find: wanted => ofAppliance(path, () => container.find(wanted)),
      read: (names, take, own) => ofAppliance(path, () => container.read(names, take, own)),
      close: () => container.close(),
    };
  } catch (error) {
    await container.close().catch(() => {});
    throw error;
  }
}

const MAGIC_BYTES = 6;
const MAGICS: [string, Packing][] = [
  ['1f8b', 'gzip'],
  ['fd377a585a00', 'xz'],
  ['504b0304', 'zip'],
];

const packingOf = (head: Buffer): Packing =>
  MAGICS.find(([magic]) => head.toString('hex').startsWith(magic))?.[1] ?? 'none';

async function openPacked(
  packing: Packing,
  { file, onBytes }: Opening,
  signal: AbortSignal,
): Promise<Container> {
  if (packing === 'none') return PlainTar.open(file, signal);
  if (packing === 'zip') return openZip(file, signal);
  const { size } = await file.stat();
  const unpack = (own: AbortSignal) => {
    const pieces = packing === 'xz' ? unxzed(file, own) : gunzipped(rangeOf(file, 0, size, own));
    return counted(limited(pieces, mostUnpacked(size)), onBytes);
  };
  return PackedTar.open(unpack, signal, () => file.close());
}

async function* counted(
  pieces: AsyncIterable<Buffer>,
  onBytes?: (doneBytes: number) => void,
): AsyncGenerator<Buffer> {
  let doneBytes = 0;
  for await (const piece of pieces) {
    doneBytes += piece.length;
    onBytes?.(doneBytes);
    yield piece;
  }
}

/** The one descriptor among the names of an OVA. Names with a dot before them are what macOS adds to any file. */
function descriptorAmong(names: readonly string[]): string {
  const found = names.filter(name => /^[^/.][^/]*\.ovf$/i.test(name));
  if (found.length === 0) throw new Fault(`it has no descriptor (.ovf) among its members ${listed(names)}`);
  if (found.length > 1) throw new Fault(`it has several descriptors: ${listed(found)}`);
  return found[0]!;
}

const MOST_NAMED = 5;

function listed(names: readonly string[]): string {
  const rest = names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : '';
  return `${names.slice(0, MOST_NAMED).map(shown).join(', ')}${rest}`;
}

async function textOf(
  container: Container,
  name: string,
  mostBytes: number,
  signal: AbortSignal,
): Promise<Text | null> {
  const member = await container.find(name);
  if (member === undefined) return null;
  if (member.sizeBytes > mostBytes)
    throw new Fault(`${shown(name)} has ${member.sizeBytes} bytes, at most ${mostBytes} are read`);
  let bytes: Buffer = Buffer.alloc(0);
  const take = async (_: unknown, pieces: AsyncIterable<Buffer>) => {
    bytes = await collected(pieces, mostBytes);
  };
  await container.read(new Set([name]), take, signal);
  return { name, bytes };
}
