import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import type { LabNode } from './node.ts';
import { isRunning, listProcesses, signalProcess } from './processes.ts';
import { start, waitFor } from './run.ts';
import { tellOfFailures } from './seen.ts';

export interface DaemonSpec {
  name: string;
  /** Program and arguments. */
  argv: [string, ...string[]];
  /** stdout and stderr are appended here. */
  logFile: string;
  /** Beside that of this process. */
  env?: Record<string, string>;
  /** Inside this node, with the paths of production; default: on the machine itself. */
  node?: LabNode;
  /** True once it serves; polled. */
  ready: () => Promise<boolean>;
}

const START_TIMEOUT_MS = 240_000;
const LOG_TAIL_BYTES = 4_000;
const LAST_WORDS = 1_500;

/** A daemon under test: started, killed, restarted and stopped as often as a test likes. */
export class Daemon {
  readonly #spec: DaemonSpec;
  #pid: number | undefined;
  #endTelling: (() => void) | undefined;
  #ended: Promise<number | null> = Promise.resolve(null);

  constructor(spec: DaemonSpec) {
    this.#spec = spec;
  }

  /** Takes over the process that an earlier program started with the same arguments; false when there is none. */
  adopt(): boolean {
    const command = withoutNodeFlags(this.#spec.argv.join(' '));
    this.#pid = listProcesses().find(process => withoutNodeFlags(process.command) === command)?.pid;
    return this.#pid !== undefined;
  }

  get pid(): number | undefined {
    return this.#pid !== undefined && isRunning(this.#pid) ? this.#pid : undefined;
  }

  /** Everything it has written so far. */
  log(): string {
    return existsSync(this.#spec.logFile) ? readFileSync(this.#spec.logFile, 'utf8') : '';
  }

  /** The end of its log for who asks why a test failed; none once its directory is gone. */
  #lastWords(): string {
    const log = this.log();
    if (log === '') this.#endTelling?.();
    return log === '' ? '' : `${this.#spec.name}: …${log.slice(-LAST_WORDS)}`;
  }

  /** Resolves with the exit code at the end of the running process; null when a signal ended it. */
  get ended(): Promise<number | null> {
    return this.#ended;
  }

  /** Starts it and waits until it serves. @throws Error with the end of its log */
  async start(env: Record<string, string> = {}): Promise<void> {
    await this.spawn(env);
    const ready = () => {
      if (this.pid === undefined) throw new Error('it ended');
      return this.#spec.ready();
    };
    await waitFor(`the start of the ${this.#spec.name}`, ready, START_TIMEOUT_MS).catch(error => {
      throw new Error(`${this.#spec.name}: ${error.message}\n${this.log().slice(-LOG_TAIL_BYTES)}`);
    });
  }

  /** Starts it without waiting: for a daemon that is expected to die at once. */
  async spawn(env: Record<string, string> = {}): Promise<void> {
    if (this.pid !== undefined) throw new Error(`the ${this.#spec.name} runs already`);
    const { argv, node, logFile, env: own } = this.#spec;
    const log = openSync(logFile, 'a');
    this.#endTelling ??= tellOfFailures(() => this.#lastWords());
    const child = start(node ? node.insideArgv(argv) : argv, {
      stdio: ['ignore', log, log],
      env: { ...process.env, ...own, ...env },
      detached: true,
    });
    closeSync(log);
    this.#pid = child.pid;
    this.#ended = new Promise(resolve => child.once('exit', code => resolve(code)));
  }

  /** kill -9, as a crash; its children and whatever it left half done stay. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL', 120_000);
  }

  /** SIGTERM, and waits for its orderly end. @throws Error when it takes longer */
  async stop(timeoutMs = 120_000): Promise<void> {
    await this.#end('SIGTERM', timeoutMs);
  }

  async restart(env: Record<string, string> = {}): Promise<void> {
    await this.stop();
    await this.start(env);
  }

  async #end(signal: NodeJS.Signals, timeoutMs: number): Promise<void> {
    const pid = this.pid;
    if (pid === undefined) return;
    signalProcess(pid, signal);
    await waitFor(`the end of the ${this.#spec.name}`, () => !isRunning(pid), timeoutMs, 20);
  }
}

/** A program of ours starts itself anew with flags of Node before its own path. */
const withoutNodeFlags = (command: string): string => command.replace(/^(\S+)(?: --\S+)+ (?=\/)/, '$1 ');
