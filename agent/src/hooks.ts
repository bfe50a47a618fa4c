/**
 * Programs of the node's administrator that are run around backups, as vzdump has them. They are set in the agent's settings only: nobody
 * can name one over the network. What they are told is docs/hooks.md.
 */
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { type Logger, redactText } from '@virtkeep/shared/log';
import { failureOf, runProgram } from '@virtkeep/shared/program';
import { KiB } from '@virtkeep/shared/units';

export type BackupPhase = 'backup-start' | 'backup-end' | 'backup-abort';

/** What a hook is told: by names without their prefix. */
export type HookFacts = Readonly<Record<string, string>>;

export interface BackupHooks {
  /**
   * Runs the program to its end.
   * @throws VirtkeepError hook_failed when it fails, cannot be run, or takes too long; the signal's reason
   */
  run(phase: BackupPhase, facts: HookFacts, options: { signal: AbortSignal; log: Logger }): Promise<void>;
}

export interface HookSettings {
  command: readonly [string, ...string[]];
  timeoutMs: number;
}

/** Of its output as much goes into the log. */
const MAX_OUTPUT_BYTES = 16 * KiB;
/** Characters of its messages that a reason has. */
const MAX_REASON = 500;
const PREFIX = 'VIRTKEEP_';
/** All else that it finds in its environment. */
const ENVIRONMENT = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  LC_ALL: 'C.UTF-8',
};
/** It does not outlive the agent, whose next run tells that the backup is given up. */
const WITH_AGENT = ['setpriv', '--pdeathsig', 'KILL', '--'];

export class ProgramHooks implements BackupHooks {
  readonly #settings: HookSettings;

  constructor(settings: HookSettings) {
    this.#settings = settings;
  }

  async run(
    phase: BackupPhase,
    facts: HookFacts,
    { signal, log }: { signal: AbortSignal; log: Logger },
  ): Promise<void> {
    const { command, timeoutMs } = this.#settings;
    const failed = (reason: string, cause?: unknown) =>
      new VirtkeepError('hook_failed', { phase, reason: redactText(reason) }, { cause });
    const output = new BoundedText(MAX_OUTPUT_BYTES);
    let stderr = '';
    try {
      const end = await runProgram([...WITH_AGENT, ...command, phase], {
        ...{ signal, timeoutMs, maxOutputBytes: 0, group: true, failed },
        operation: `the hook ${phase}`,
        env: { ...ENVIRONMENT, ...environmentOf(phase, facts) },
        onOutput: piece => output.add(piece),
      });
      // before anything is cut off: a secret is known by what stands before it
      stderr = redactText(end.stderr).trim();
      if (end.code !== 0) throw failed(lastOf(stderr, MAX_REASON) || failureOf({ ...end, stderr }));
    } catch (error) {
      if (hasKey(error, 'timed_out'))
        throw failed(`it did not end within ${timeoutMs / 1000} s and was killed`, error);
      throw error;
    } finally {
      const said = { stdout: output.text, stderr: lastOf(stderr, MAX_OUTPUT_BYTES) };
      if (said.stdout !== '' || said.stderr !== '')
        log.info('a hook said something', {
          phase,
          stdout: redactText(said.stdout),
          stderr: said.stderr,
        });
    }
  }
}

const environmentOf = (phase: BackupPhase, facts: HookFacts): Record<string, string> =>
  Object.fromEntries(
    Object.entries({ PHASE: phase, ...facts }).map(([name, value]) => [
      `${PREFIX}${name}`,
      // nothing else cannot be in an environment
      value.replaceAll('\0', ''),
    ]),
  );

/** The last lines that have so many characters together; of a longer last one its end. */
function lastOf(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text;
  const end = text.slice(-maxLength);
  return text.at(-maxLength - 1) === '\n' ? end : end.slice(end.indexOf('\n') + 1);
}

/** The beginning of what is said. */
class BoundedText {
  readonly #maxBytes: number;
  #bytes = Buffer.alloc(0);

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  add(piece: Buffer): void {
    if (this.#bytes.length < this.#maxBytes)
      this.#bytes = Buffer.concat([this.#bytes, piece]).subarray(0, this.#maxBytes);
  }

  get text(): string {
    return this.#bytes.toString('utf8');
  }
}

/** Tells of a failure and goes on: what a hook is told of has happened already. @throws the signal's reason: it is told later */
export async function tellHook(
  hooks: BackupHooks | undefined,
  { phase, facts }: { phase: BackupPhase; facts: HookFacts },
  { signal, log, warn }: { signal: AbortSignal; log: Logger; warn: (text: string) => void },
): Promise<void> {
  try {
    await hooks?.run(phase, facts, { signal, log });
  } catch (error) {
    if (signal.aborted) throw error;
    warn(
      `The hook ${phase} failed: ${hasKey(error, 'hook_failed') ? error.params.reason : reasonOf(error)}.`,
    );
  }
}
