/**
 * A PostgreSQL server of the tests' own, in a directory that goes with it, reached by a socket in there. Nothing of it is the machine's: the
 * programs are those that are installed, or else Debian's package, unpacked and not installed, since installing it would make and start
 * a server of the machine.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { chownSync, cpSync, existsSync, readdirSync, rmSync } from 'node:fs';
import { join, relative } from 'node:path';
import { sql } from 'kysely';
import { openPostgres } from '../../controller/src/store/postgres.ts';
import { unpackedPackage } from './apt-files.ts';
import { freePort } from './free-port.ts';
import { makeWorldDir } from './paths.ts';
import { isRunning, signalProcess } from './processes.ts';
import { run, succeeds, waitFor } from './run.ts';

const OLDEST = 15;
const INSTALLED = '/usr/lib/postgresql';
/** PostgreSQL refuses root. */
const NOBODY = 65_534;
const USER = 'virtkeep';
const START_TIMEOUT_MS = 240_000;
/** Nothing of it must outlive the machine. */
const FAST = {
  fsync: 'off',
  full_page_writes: 'off',
  synchronous_commit: 'off',
  wal_level: 'minimal',
  max_wal_senders: '0',
  shared_buffers: '64MB',
  jit: 'off',
  // what it counts when a minute is over makes other plans of the same statements, on a machine that needs so long
  autovacuum: 'off',
};

export interface PostgresOptions {
  /** Also on a port of 127.0.0.1, where this password is asked for. */
  password?: string;
  /** As it is in production: what is committed is on the disk. */
  isDurable?: boolean;
  /** Others may follow it (`follow`). */
  isFollowed?: boolean;
}

export class TestPostgres {
  readonly directory: string;
  readonly port: number;
  readonly #argv: [string, ...string[]];
  readonly #env: NodeJS.ProcessEnv;
  #child: ChildProcess | undefined;

  private constructor(directory: string, port: number, programs: Programs, settings: Record<string, string>) {
    this.directory = directory;
    this.port = port;
    this.#env = programs.env;
    const flags = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    this.#argv = [join(programs.bin, 'postgres'), '-D', join(directory, 'data'), '-k', directory, ...flags];
  }

  /** Makes a server and starts it. It answers soon: who connects tries again until then. */
  static async start({ password, isDurable, isFollowed }: PostgresOptions = {}): Promise<TestPostgres> {
    const directory = makeWorldDir();
    if (isRoot()) chownSync(directory, NOBODY, NOBODY);
    const programs = await programsFor(directory);
    await run(asNobody(join(programs.bin, 'initdb'), ...initFlags(directory)), {
      env: programs.env,
      cwd: directory,
      timeoutMs: START_TIMEOUT_MS,
    });
    const port = await freePort();
    const server = new TestPostgres(directory, port, programs, {
      port: String(port),
      listen_addresses: password === undefined ? '' : '127.0.0.1',
      ...(isDurable ? {} : FAST),
      ...(isFollowed ? { wal_level: 'replica', max_wal_senders: '4' } : {}),
    });
    server.begin();
    if (password !== undefined) await server.ask(`alter user ${USER} password '${password}'`);
    return server;
  }

  /** Makes one that has all that this one has, and confirms each commit of it from now on. */
  async follow(): Promise<TestPostgres> {
    const directory = makeWorldDir();
    if (isRoot()) chownSync(directory, NOBODY, NOBODY);
    const programs = await programsFor(directory);
    const source = ['-h', this.directory, '-p', String(this.port), '-U', USER];
    await run(
      asNobody(
        join(programs.bin, 'pg_basebackup'),
        ...source,
        '-D',
        join(directory, 'data'),
        '-R',
        '-c',
        'fast',
      ),
      { env: programs.env, cwd: directory, timeoutMs: START_TIMEOUT_MS },
    );
    const port = await freePort();
    const follower = new TestPostgres(directory, port, programs, {
      port: String(port),
      listen_addresses: '127.0.0.1',
      // it need not wait for anybody
      synchronous_standby_names: '',
    });
    follower.begin();
    await follower.ask('select 1');
    await this.ask("alter system set synchronous_standby_names = '*'");
    await this.ask('select pg_reload_conf()');
    return follower;
  }

  /** Whether it takes changes, and not only follows. */
  async isPrimary(): Promise<boolean> {
    const db = openPostgres({ kind: 'postgres', url: this.url() });
    try {
      const { rows } = await sql<{ follows: boolean }>`select pg_is_in_recovery() as follows`.execute(db);
      return rows[0]?.follows === false;
    } finally {
      await db.destroy();
    }
  }

  /** One or several statements, as the owner of all. */
  async ask(text: string, database = 'postgres'): Promise<void> {
    const db = openPostgres({ kind: 'postgres', url: this.url(database) });
    try {
      await sql.raw(text).execute(db);
    } finally {
      await db.destroy();
    }
  }

  /** By the socket. */
  url(database = 'postgres'): string {
    return `postgres:///${database}?host=${this.directory}&port=${this.port}&user=${USER}`;
  }

  /** Starts it again after `end`. */
  begin(): void {
    const [program, ...argv] = asNobody(...this.#argv);
    this.#child = spawn(program, argv, {
      cwd: this.directory,
      env: this.#env,
      stdio: 'ignore',
      detached: true,
    });
    this.#child.unref();
  }

  /** It hangs up on everybody at once, or, with `immediate`, as if it had crashed. */
  async end(how: 'fast' | 'immediate' = 'fast'): Promise<void> {
    const pid = this.#child?.pid;
    if (pid === undefined) return;
    signalProcess(pid, how === 'fast' ? 'SIGINT' : 'SIGQUIT');
    await waitFor('the end of the PostgreSQL server', () => !isRunning(pid), START_TIMEOUT_MS, 20);
    this.#child = undefined;
  }

  /** Ends it; nothing is left. */
  async remove(): Promise<void> {
    await this.end('immediate');
    rmSync(this.directory, { recursive: true, force: true });
  }
}

interface Programs {
  bin: string;
  env: NodeJS.ProcessEnv;
}

const isRoot = (): boolean => process.geteuid?.() === 0;

const asNobody = (...argv: [string, ...string[]]): [string, ...string[]] =>
  isRoot() ? ['setpriv', `--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups', ...argv] : argv;

const initFlags = (directory: string): string[] => [
  ...['-D', join(directory, 'data'), '-U', USER, '-E', 'UTF8', '--no-locale', '--no-sync'],
  ...['--auth-local=trust', '--auth-host=scram-sha-256'],
];

async function programsFor(directory: string): Promise<Programs> {
  const env = { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' };
  const bin = installedPrograms() ?? (await unpackedPrograms());
  if (await succeeds(asNobody('test', '-x', join(bin, 'postgres')), { cwd: '/' })) return { bin, env };
  // below a directory that is root's alone; the programs find the rest of theirs beside themselves
  const root = join(bin, '..', '..', '..', '..', '..');
  cpSync(join(root, 'usr'), join(directory, 'usr'), { recursive: true });
  return { bin: join(directory, relative(root, bin)), env };
}

/** The directory of the newest ones. */
function installedPrograms(): string | undefined {
  if (!existsSync(INSTALLED)) return undefined;
  const version = readdirSync(INSTALLED)
    .filter(name => Number(name) >= OLDEST && existsSync(join(INSTALLED, name, 'bin', 'initdb')))
    .sort((a, b) => Number(a) - Number(b))
    .at(-1);
  return version && join(INSTALLED, version, 'bin');
}

/** The same of Debian's package, for which `setup.sh test-packages` brings the libraries. */
export async function unpackedPrograms(): Promise<string> {
  const { stdout } = await run(['apt-cache', 'depends', 'postgresql']);
  const name = stdout.match(/Depends: (postgresql-\d+)/)?.[1];
  if (!name) throw new Error('apt knows no postgresql; is this Debian 12 or 13?');
  return join(await unpackedPackage(name), 'usr', 'lib', 'postgresql', name.split('-')[1]!, 'bin');
}

if (import.meta.main && installedPrograms() === undefined) await unpackedPrograms();
