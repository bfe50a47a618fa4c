/** Scheduled tasks name things by id; people by name. The same settings both ways. */
import type { Client, Json } from '../client.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { type Named, resolve } from '../resolve.ts';

/** Settings that are lists of ids, and the collection that these are of. */
const LISTS = {
  entities: 'domains',
  exclude_entities: 'domains',
  nodes: 'nodes',
  tags: 'tags',
  exclude_tags: 'tags',
} as const;

type Collection = 'domains' | 'data-pools' | 'nodes' | 'tags';

/**
 * @param before action of the task that is changed: it stays where the settings name none
 * @throws CliError notFound, or usage when a name is not unique
 */
export async function withIds(client: Client, settings: Json, before?: unknown): Promise<Json> {
  const result: Json = { ...settings };
  const isScan = (settings.action ?? before) === 'scan';
  for (const [field, collection] of Object.entries(LISTS)) {
    const names = settings[field];
    if (!Array.isArray(names)) continue;
    const of: Collection = collection === 'domains' && isScan ? 'data-pools' : collection;
    const ids: string[] = [];
    for (const name of names) ids.push((await resolve(client, of, String(name))).id);
    result[field] = ids;
  }
  const { datapool } = (settings.options ?? {}) as Json;
  if (typeof datapool === 'string')
    result.options = {
      ...(settings.options as Json),
      datapool: (await resolve(client, 'data-pools', datapool)).id,
    };
  return result;
}

/** The names of all that such settings may name, by id. */
export class Names {
  readonly #names: ReadonlyMap<string, string>;

  private constructor(names: ReadonlyMap<string, string>) {
    this.#names = names;
  }

  static async of(client: Client): Promise<Names> {
    const names = new Map<string, string>();
    const seen = new Map<string, number>();
    for (const collection of ['domains', 'data-pools', 'nodes', 'tags'] as const)
      for (const { id, verbose_name } of await client.all<Named>(`/api/${collection}/`)) {
        const key = `${collection} ${verbose_name}`;
        seen.set(key, (seen.get(key) ?? 0) + 1);
        names.set(id, key);
      }
    // a name that several things have names none of them
    const unique = [...names].filter(([, key]) => seen.get(key) === 1);
    return new Names(new Map(unique.map(([id, key]) => [id, key.slice(key.indexOf(' ') + 1)])));
  }

  of(id: string): string {
    return this.#names.get(id) ?? id;
  }

  /** Settings with names where there is one for an id. */
  in(settings: Json): Json {
    const result: Json = { ...settings };
    for (const field of Object.keys(LISTS))
      if (Array.isArray(settings[field]))
        result[field] = (settings[field] as string[]).map(id => this.of(id));
    const { datapool } = (settings.options ?? {}) as Json;
    if (typeof datapool === 'string')
      result.options = { ...(settings.options as Json), datapool: this.of(datapool) };
    return result;
  }
}

/** By its name or id. @throws CliError */
export async function resolveSchedule(client: Client, nameOrId: string): Promise<Named> {
  return scheduleOf(await client.all<Named>('/api/scheduled-tasks/'), nameOrId);
}

/** One of these, by its name or id. @throws CliError */
export function scheduleOf(all: readonly Named[], nameOrId: string): Named {
  const found = all.find(one => one.id === nameOrId.toLowerCase() || one.verbose_name === nameOrId);
  if (!found) throw new CliError(`There is no scheduled task "${nameOrId}".`, ExitCode.notFound);
  return found;
}
