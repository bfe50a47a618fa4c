/**
 * virsh, in sessions that stay: to start one for each question loads a hundred libraries, and was a third of all work of tests with
 * guests. A session takes a command at a time; as many are started as are needed at once. It has no exit codes: a command has failed when it
 * printed a line that begins with `error: `, or was not understood.
 */
import childProcess, { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';
import { CommandFailed, run } from './run.ts';

const TIMEOUT_MS = 180_000;
/** Other characters mean something to the line editor of a session, which is slow with long lines besides. */
const PLAIN = /^[\x20-\x7e]+$/;
const MAX_LENGTH = 2000;
/** One, not a line of several. */
const COMMAND = /^[a-z-]+$/;
/** These wait for what may not come, take over the terminal, or fail without a word. */
const ALONE = new Set(['event', 'console', 'edit', '--wait', '--verbose']);
/** Told in the middle of whatever comes next, which is done all the same. */
const LINK = /^error: (?:Disconnected from|Reconnected to) .*\n?/gm;

/** Some test files have modules of their own; the sessions are those of the process, so that whoever ends a node ends its sessions. */
const SHARED = childProcess as unknown as { [KEY]?: Map<string, Session[]> };
const KEY = Symbol.for('virtkeep.test.virsh');
SHARED[KEY] ??= new Map();
const idle = SHARED[KEY];

/**
 * Runs a command of virsh. @returns what it printed
 * @param daemon pid of the libvirtd that answers there now, undefined when it is away: a session with another one is of no use
 * @throws CommandFailed
 */
export async function virsh(
  uri: string,
  daemon: number | undefined,
  args: readonly string[],
): Promise<string> {
  const fits = args.every(arg => PLAIN.test(arg)) && args.join(' ').length < MAX_LENGTH;
  if (daemon === undefined || !fits || !COMMAND.test(args[0]!) || args.some(arg => ALONE.has(arg)))
    return (await run(['virsh', '-q', '-c', uri, ...args], { timeoutMs: TIMEOUT_MS })).stdout;
  const sessions = idle.get(uri) ?? [];
  idle.set(uri, sessions);
  let session = sessions.pop();
  while (session && (session.daemon !== daemon || session.ended)) {
    await session.end();
    session = sessions.pop();
  }
  session ??= new Session(uri, daemon);
  try {
    return await session.run(args);
  } finally {
    // those of a node that has been ended meanwhile are not kept
    if (!session.ended && idle.get(uri) === sessions) sessions.push(session);
    else await session.end();
  }
}

/** Ends the sessions with a daemon. */
export async function endVirsh(uri: string): Promise<void> {
  const sessions = idle.get(uri) ?? [];
  idle.delete(uri);
  for (const session of sessions) await session.end();
}

class Session {
  readonly daemon: number;
  readonly #uri: string;
  readonly #child: ChildProcess;
  readonly #exited: Promise<void>;
  #ended = false;
  #printed = '';
  #onPrinted: () => void = () => {};
  #commands = 0;

  constructor(uri: string, daemon: number) {
    this.#uri = uri;
    this.daemon = daemon;
    // errors stand where they were told, in one stream with the rest: virsh takes care of the order
    this.#child = spawn('sh', ['-c', 'exec virsh -q -c "$0" 2>&1', uri], {
      stdio: ['pipe', 'pipe', 'ignore'],
      // its history of commands is nobody's
      env: { ...process.env, TERM: 'dumb', LC_ALL: 'C.UTF-8', XDG_CACHE_HOME: '/dev/null' },
    });
    this.#child.stdin!.on('error', () => {});
    this.#child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      this.#printed += text;
      this.#onPrinted();
    });
    this.#exited = new Promise(resolve => {
      const onEnd = () => {
        this.#ended = true;
        this.#onPrinted();
        resolve();
      };
      this.#child.once('close', onEnd).once('error', onEnd);
    });
  }

  get ended(): boolean {
    return this.#ended;
  }

  async run(args: readonly string[]): Promise<string> {
    const number = String(++this.#commands);
    const quoted = args.map(arg => `'${arg.replaceAll("'", "'\\''")}'`).join(' ');
    this.#printed = '';
    this.#hold(true);
    let timer: NodeJS.Timeout | undefined;
    try {
      // the lines themselves are printed, too, where the numbers are quoted; of one that cannot be understood nothing is done
      this.#child.stdin!.write(
        `echo @begin "${number}"; ${quoted}; echo @end "${number}"\necho @done "${number}"\n`,
      );
      await new Promise<void>(resolve => {
        timer = setTimeout(() => {
          this.#child.kill('SIGKILL');
        }, TIMEOUT_MS);
        this.#onPrinted = () => {
          if (this.#ended || this.#printed.includes(`@done ${number}`)) resolve();
        };
        this.#onPrinted();
      });
    } finally {
      clearTimeout(timer);
      this.#onPrinted = () => {};
      this.#hold(false);
    }
    return this.#answer(args, number);
  }

  #answer(args: readonly string[], number: string): string {
    const begin = `@begin ${number}`;
    const [from, to] = [this.#printed.indexOf(begin), this.#printed.indexOf(`@end ${number}`)];
    const argv = ['virsh', '-q', '-c', this.#uri, ...args];
    if (from === -1 || to === -1)
      throw new CommandFailed(argv, this.#ended ? null : 1, { stdout: '', stderr: this.#printed });
    const text = this.#printed.slice(from + begin.length, to).replaceAll(LINK, '');
    const error = /^error: /m.exec(text);
    if (error) {
      const [stdout, stderr] = [text.slice(0, error.index), text.slice(error.index)];
      throw new CommandFailed(argv, 1, { stdout, stderr });
    }
    return text;
  }

  async end(): Promise<void> {
    this.#hold(true);
    this.#child.kill('SIGKILL');
    await this.#exited;
  }

  /** An idle session does not keep the process alive. */
  #hold(on: boolean): void {
    const how = on ? 'ref' : 'unref';
    this.#child[how]();
    for (const pipe of [this.#child.stdin, this.#child.stdout]) (pipe as Socket | null)?.[how]?.();
  }
}
