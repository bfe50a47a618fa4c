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
  collection: 'domains' | 'data-pools' | 'nodes',
  word: string,
): Promise<Named> {
  if (UUID.test(word)) return client.get<Named>(`/api/${collection}/${word.toLowerCase()}/`);
  const found = (await client.all<Named>(`/api/${collection}/`, { name: word })).filter(
    one => one.verbose_name === word,
  );
  return single(found, collection, word);
}

/** Finds a backup file by its id or its exact file name. */
export async function resolveFile(client: Client, word: string): Promise<Named & { filename: string }> {
  if (UUID.test(word)) return client.get<Named & { filename: string }>(`/api/library/${word.toLowerCase()}/`);
  const files = await client.all<Named & { filename: string }>('/api/library/');
  return single(
    files.filter(file => file.filename === word),
    'backups',
    word,
  );
}

/** Finds a saved state of a VM by its id or its exact name. */
export async function resolveSnapshot(client: Client, domainId: string, word: string): Promise<Named> {
  const states = await client.all<Named>(`/api/domains/${domainId}/snapshots/`);
  return single(
    states.filter(state => state.id === word.toLowerCase() || state.verbose_name === word),
    'saved states',
    word,
  );
}

/**
 * A disk by its id (which nobody need know), or by its exact name: among the likely ones when it is there, else among all.
 * @param likely filters of the list
 */
export async function resolveVdisk(
  client: Client,
  word: string,
  likely: Query = {},
): Promise<{ id: string }> {
  if (UUID.test(word)) return { id: word.toLowerCase() };
  const named = async (query: Query) =>
    (await client.all<Named>('/api/vdisks/', { name: word, ...query })).filter(
      disk => disk.verbose_name === word,
    );
  const found = await named(likely);
  return single(found.length > 0 ? found : await named({}), 'disks', word);
}

function single<T extends { id: string }>(found: T[], collection: string, word: string): T {
  const [first, second] = found;
  if (!first)
    throw new CliError(`There is nothing named "${word}" among the ${collection}.`, ExitCode.notFound);
  if (second)
    throw new CliError(
      `"${word}" is not unique among the ${collection}: ${found.map(one => one.id).join(', ')}. Give the id.`,
      ExitCode.usage,
    );
  return first;
}
