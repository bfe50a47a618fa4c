/** Which database a controller keeps its rows in. */
import { ConfigError } from '@virtkeep/shared/config';

/** Asks a new connection before anybody else does; what it throws closes the connection and reaches who wanted it. */
export type Admit = (
  query: (text: string, values?: unknown[]) => Promise<Record<string, unknown>[]>,
) => Promise<void>;

export interface SqliteTarget {
  kind: 'sqlite';
  /** Of its file; `:memory:` is one that lives with the process. */
  path: string;
}

export interface PostgresTarget {
  kind: 'postgres';
  /** With or without a password (`postgresUrlProblem`). */
  url: string;
  /** In place of one in the URL. */
  password?: string;
  admit?: Admit;
  /** By which the server lists the connection; `virtkeep` when absent. */
  applicationName?: string;
  /** Each statement is a short one: one that is not answered soon never will be, or waits for somebody who holds a row. */
  isBrief?: boolean;
}

export type DatabaseTarget = SqliteTarget | PostgresTarget;

const PARAMETERS = ['host', 'port', 'user', 'sslmode', 'sslrootcert', 'sslcert', 'sslkey'];
const SSL_MODES = ['disable', 'require', 'verify-ca', 'verify-full'];

/** True for what names a PostgreSQL database, well or badly. */
export const isPostgresUrl = (text: string): boolean => /^postgres(ql)?:/i.test(text);

/** What is wrong with the URL of a PostgreSQL database, without what it holds: that may be a password. Undefined: nothing. */
export function postgresUrlProblem(text: string): string | undefined {
  if (!/^postgres(ql)?:\/\//.test(text)) return 'must begin with postgres:// or postgresql://';
  const url = parsed(text);
  if (url === undefined || /\s/.test(text))
    return 'is not a valid URL; write special characters of its parts as %XX';
  if (databaseOf(url) === undefined) return 'must name the database: postgres://user@host/database';
  const unknown = [...url.searchParams.keys()].find(name => !PARAMETERS.includes(name));
  if (unknown !== undefined)
    return `must not have the parameter "${unknown}"; there are: ${PARAMETERS.join(', ')}`;
  return modeProblem(url.searchParams);
}

function modeProblem(parameters: URLSearchParams): string | undefined {
  const mode = parameters.get('sslmode');
  if (mode !== null && !SSL_MODES.includes(mode)) return `must have an sslmode of: ${SSL_MODES.join(', ')}`;
  return mode === 'verify-ca' && !parameters.has('sslrootcert')
    ? 'needs sslrootcert for verify-ca'
    : undefined;
}

/** One part, without a slash. */
function databaseOf(url: URL): string | undefined {
  try {
    const name = decodeURIComponent(url.pathname.slice(1));
    decodeURIComponent(url.username + url.password);
    return name === '' || name.includes('/') ? undefined : name;
  } catch {
    return undefined;
  }
}

/** Whether a password stands in a URL that has no problem. */
export const hasPassword = (url: string): boolean => new URL(url).password !== '';

/** As it may be shown. */
export function shownUrl(text: string): string {
  const url = new URL(text);
  url.password = '';
  return url.href;
}

/**
 * The target of a URL of PostgreSQL or, as an absolute path, of an SQLite file.
 * @throws ConfigError for what is neither
 */
export function targetOf(text: string, password?: string): DatabaseTarget {
  if (text.startsWith('/')) return { kind: 'sqlite', path: text };
  const problem = postgresUrlProblem(text);
  if (problem !== undefined) throw new ConfigError(`the database ${problem}`);
  return { kind: 'postgres', url: text, ...(password !== undefined && { password }) };
}

function parsed(text: string): URL | undefined {
  return URL.canParse(text) ? new URL(text) : undefined;
}
