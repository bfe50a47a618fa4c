import type { Client, Json, Query } from './client.ts';
import { CliError, ExitCode } from './exit-codes.ts';

export type Named = Json & { id: string; verbose_name: string };

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/**
 * Finds one thing by its id or its exact name.
 * @throws CliError notFound, or usage when the name is not unique.
 */
export async function resolve(
  client: Client,
  collection: 'domains' | 'data-pools' | 'nodes' | 'notification-targets' | 'tags',
  nameOrId: string,
): Promise<Named> {
  if (UUID.test(nameOrId)) return client.get<Named>(`/api/${collection}/${nameOrId.toLowerCase()}/`);
  const found = (await client.all<Named>(`/api/${collection}/`, { name: nameOrId })).filter(
    one => one.verbose_name === nameOrId,
  );
  return single(found, collection, nameOrId);
}

export type LibraryFile = Named & { filename: string };

/** Finds a backup file by its id or its exact file name. @throws CliError as `resolve` */
export async function resolveFile(client: Client, nameOrId: string): Promise<LibraryFile> {
  return (await findFile(client, nameOrId)) ?? single<LibraryFile>([], 'backups', nameOrId);
}

/** As `resolveFile`; undefined: no file has this name. @throws CliError as `resolve` */
export async function findFile(client: Client, nameOrId: string): Promise<LibraryFile | undefined> {
  if (UUID.test(nameOrId)) return client.get<LibraryFile>(`/api/library/${nameOrId.toLowerCase()}/`);
  const files = await client.all<LibraryFile>('/api/library/');
  const found = files.filter(file => file.filename === nameOrId);
  return found.length === 0 ? undefined : single(found, 'backups', nameOrId);
}

/** Finds a saved state of a VM by its id or its exact name. */
export async function resolveSnapshot(client: Client, domainId: string, nameOrId: string): Promise<Named> {
  const states = await client.all<Named>(`/api/domains/${domainId}/snapshots/`);
  return single(
    states.filter(state => state.id === nameOrId.toLowerCase() || state.verbose_name === nameOrId),
    'saved states',
    nameOrId,
  );
}

/**
 * A disk by its id (which nobody need know), or by its exact name: among the likely ones when it is there, else among all.
 * @param likely filters of the list
 */
export async function resolveVdisk(
  client: Client,
  nameOrId: string,
  likely: Query = {},
): Promise<{ id: string }> {
  if (UUID.test(nameOrId)) return { id: nameOrId.toLowerCase() };
  const named = async (query: Query) =>
    (await client.all<Named>('/api/vdisks/', { name: nameOrId, ...query })).filter(
      disk => disk.verbose_name === nameOrId,
    );
  const found = await named(likely);
  return single(found.length > 0 ? found : await named({}), 'disks', nameOrId);
}

function single<T extends { id: string }>(found: T[], collection: string, nameOrId: string): T {
  const [first, second] = found;
  if (!first)
    throw new CliError(`There is nothing named "${nameOrId}" among the ${collection}.`, ExitCode.notFound);
  if (second)
    throw new CliError(
      `"${nameOrId}" is not unique among the ${collection}: ${found.map(one => one.id).join(', ')}. Give the id.`,
      ExitCode.usage,
    );
  return first;
}
