/** Scheduled tasks as a YAML file: written, read, and compared with what there is. */
import { parse, stringify } from 'yaml';
import type { Client, Json } from '../client.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import type { Named } from '../resolve.ts';
import { Names, scheduleOf, withIds } from './names.ts';

/** What a record has beside the settings. */
const NO_SETTINGS = [
  'id',
  'entity_class',
  'next_run',
  'last_run',
  'warnings',
  'user',
  'created',
  'modified',
  'permissions',
];

export interface Change {
  name: string;
  kind: 'new' | 'changed' | 'same';
  /** One a setting that differs. */
  differences: { field: string; from: unknown; to: unknown }[];
  /** What is sent; ids stand for names. */
  settings: Json;
  id: string | undefined;
}

/** All scheduled tasks, or these, with names instead of ids. @throws CliError not_found */
export async function exported(client: Client, names: readonly string[]): Promise<string> {
  const all = await client.all<Named>('/api/scheduled-tasks/', { all_content: 1 });
  const chosen = names.length === 0 ? all : names.map(name => scheduleOf(all, name));
  const known = await Names.of(client);
  return stringify({ schedules: chosen.map(one => known.in(settingsOf(one))) });
}

function settingsOf(record: Json): Json {
  return Object.fromEntries(Object.entries(record).filter(([name]) => !NO_SETTINGS.includes(name)));
}

/** @throws CliError usage: it is no such file */
export function readSchedules(text: string): Json[] {
  let read: unknown;
  try {
    read = parse(text);
  } catch (error) {
    throw new CliError(`The file is no YAML: ${(error as Error).message}`, ExitCode.usage);
  }
  const list = (read as { schedules?: unknown } | null)?.schedules;
  if (!Array.isArray(list)) throw new CliError('The file has no list "schedules".', ExitCode.usage);
  const names = list.map(one => (one as { verbose_name?: unknown } | null)?.verbose_name);
  for (const [index, name] of names.entries()) {
    if (typeof name !== 'string' || name === '')
      throw new CliError(`Number ${index + 1} of the schedules has no verbose_name.`, ExitCode.usage);
    if (names.indexOf(name) !== index)
      throw new CliError(`The file has two schedules of the name "${name}".`, ExitCode.usage);
  }
  return list as Json[];
}

/** What applying a file would change; a setting that it does not name stays as it is. */
export async function changesOf(client: Client, schedules: readonly Json[]): Promise<Change[]> {
  const present = await client.all<Named>('/api/scheduled-tasks/', { all_content: 1 });
  const names = await Names.of(client);
  const changes: Change[] = [];
  for (const given of schedules) {
    const before = present.find(one => one.verbose_name === given.verbose_name);
    const settings = await withIds(client, given, before?.action);
    const [told, sent] = [names.in(before ?? {}), names.in(settings)];
    const differences = Object.keys(settings)
      .filter(field => !before || !isSame(before[field], settings[field]) || hasMore(field, before, settings))
      .map(field => ({ field, from: told[field], to: sent[field] }));
    const kind = !before ? 'new' : differences.length > 0 ? 'changed' : 'same';
    changes.push({ name: String(given.verbose_name), kind, differences, settings, id: before?.id });
  }
  return changes;
}

/** @throws CliError that names the scheduled task */
export async function carryOut(
  client: Client,
  { name, kind, settings, id, differences }: Change,
): Promise<void> {
  if (kind === 'same') return;
  const changed = Object.fromEntries(differences.map(({ field }) => [field, settings[field]]));
  try {
    if (kind === 'new') await client.post('/api/scheduled-tasks/', settings);
    else await client.put(`/api/scheduled-tasks/${id}/`, changed);
  } catch (error) {
    if (error instanceof CliError) error.message = `${name}: ${error.message}`;
    throw error;
  }
}

/** Options are one setting: what is not named among them is not set. */
function hasMore(field: string, before: Json, wanted: Json): boolean {
  const count = (of: Json) => Object.keys((of.options ?? {}) as Json).length;
  return field === 'options' && count(before) > count(wanted);
}

/** Times may be written in several ways, and of objects a part may be named. */
function isSame(before: unknown, wanted: unknown): boolean {
  if (typeof wanted === 'string' && typeof before === 'string')
    return before === wanted || (isTime(before) && Date.parse(before) === Date.parse(wanted));
  if (Array.isArray(wanted))
    return (
      Array.isArray(before) && before.length === wanted.length && wanted.every(one => before.includes(one))
    );
  if (typeof wanted === 'object' && wanted !== null)
    return Object.entries(wanted).every(([name, value]) =>
      isSame((before as Json | undefined)?.[name], value),
    );
  return before === wanted;
}

const isTime = (text: string): boolean => /^\d{4}-\d\d-\d\dT/.test(text);
