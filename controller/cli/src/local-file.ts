/** A file that a command is given: one of the library, or one here, which is uploaded first. */
import { existsSync } from 'node:fs';
import type { Client } from './client.ts';
import { CliError, ExitCode } from './exit-codes.ts';
import { bytes, clean, note } from './output.ts';
import { findFile, type LibraryFile, type Named, resolveFile } from './resolve.ts';
import { isDescriptor, type Source, send, sourcesOf } from './upload.ts';

/** Where a file from here goes: the data pool, else the base pool of the node, else that of the only node. */
export interface UploadTarget {
  pool?: Named | undefined;
  node?: string | undefined;
}

/**
 * What the library has under this id or name; else the file at this path, which is uploaded and stays in the data pool. Of a directory, or
 * a descriptor with what lies beside it, it is the descriptor.
 * @throws CliError notFound; usage: it is not said where to upload it, or which of several descriptors is meant; as `send`
 */
export async function fileOrUpload(
  client: Client,
  nameOrPath: string,
  target: UploadTarget,
): Promise<LibraryFile> {
  const found = await findFile(client, nameOrPath);
  if (found) return found;
  // with the error of a name that is not there
  if (!existsSync(nameOrPath)) return resolveFile(client, nameOrPath);
  const sources = await sourcesOf(nameOrPath);
  const wanted = wantedOf(sources, nameOrPath);
  const pool = target.pool ?? (await basePool(client, target.node));
  for (const source of sources) {
    note(
      `Uploading ${source.filename}, ${bytes(source.sizeBytes)}, to the data pool ${clean(pool.verbose_name)}`,
    );
    const { file } = await send(client, source, { datapool: pool.id, sha256: '' });
    if (source === wanted && file) return file as LibraryFile;
  }
  throw new CliError(
    `${wanted.filename} was uploaded, but is not in the library yet; try again with that name.`,
  );
}

/** What of the files is meant; it is the last one. */
function wantedOf(sources: Source[], path: string): Source {
  const last = sources.at(-1)!;
  const [meant, ...others] =
    sources.length === 1 ? sources : sources.filter(({ filename }) => isDescriptor(filename));
  if (meant === undefined)
    throw new CliError(`${path} has no OVF descriptor. Give a file of it.`, ExitCode.usage);
  if (others.length > 0)
    throw new CliError(`${path} has several OVF descriptors, and one is wanted.`, ExitCode.usage);
  return last;
}

async function basePool(client: Client, given: string | undefined): Promise<Named> {
  const nodes: Named[] = given
    ? [await client.get<Named>(`/api/nodes/${given}/`)]
    : await client.all<Named>('/api/nodes/');
  const [node, another] = nodes;
  const base = node && !another ? node.base_datapool : undefined;
  if (!base)
    throw new CliError('Which data pool is the file to be uploaded to? Give --pool.', ExitCode.usage);
  return client.get<Named>(`/api/data-pools/${base}/`);
}
