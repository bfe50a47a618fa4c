/**
 * A test switch: faults injected at the steps of operations, so that the tests can kill, fail or hold the agent at an
 * exact point. The environment variable VIRTKEEP_FAULTS is a comma-separated list of `<kind>.<step>.<when>=<action>`, or
 * `@` and the path of a file that holds such a list and is read at each step, so that a running agent can be given others:
 *
 * - when: `before` or `after` the step, or `mid`, at the first bytes the step reports;
 * - action: `kill` (SIGKILL to the agent itself), `fail` (an io_failed error), or `pause:<file>` (makes
 *   `<file>.reached`, then waits until `<file>` exists or the operation is aborted).
 *
 * A step's work cannot be suspended from outside, so `mid=pause` makes `<file>.reached` at the first bytes and holds
 * the operation at the end of the step.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { sleep } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';

type FaultAction = { type: 'kill' } | { type: 'fail' } | { type: 'pause'; file: string };

const POINT = /^[a-z0-9_]+\.[a-z0-9_-]+\.(before|mid|after)$/;
const PAUSE_POLL_MS = 20;

export class Faults {
  /** Whether faults are or may be injected. */
  readonly active: boolean;
  readonly #actions: () => ReadonlyMap<string, FaultAction>;

  private constructor(active: boolean, actions: () => ReadonlyMap<string, FaultAction>) {
    this.active = active;
    this.#actions = actions;
  }

  /** @throws Error naming the entry that cannot be read. */
  static parse(text = ''): Faults {
    if (text.startsWith('@')) return new Faults(true, () => parseList(readFileSync(text.slice(1), 'utf8')));
    const actions = parseList(text);
    return new Faults(actions.size > 0, () => actions);
  }

  /** The moments around a step's work. */
  async reach(kind: string, step: string, when: 'before' | 'after', signal: AbortSignal): Promise<void> {
    const action = this.#actions().get(`${kind}.${step}.${when}`);
    if (!action) return;
    this.#strike(action, `${kind}.${step}.${when}`);
    if (action.type === 'pause') await waitFor(action.file, signal);
  }

  /** The first bytes of a step. Returns the wait that the step's end owes, when the fault is a pause. */
  middle(kind: string, step: string): ((signal: AbortSignal) => Promise<void>) | undefined {
    const action = this.#actions().get(`${kind}.${step}.mid`);
    if (!action) return undefined;
    this.#strike(action, `${kind}.${step}.mid`);
    return action.type === 'pause' ? signal => waitFor(action.file, signal) : undefined;
  }

  #strike(action: FaultAction, point: string): void {
    if (action.type === 'kill') process.kill(process.pid, 'SIGKILL');
    if (action.type === 'fail') {
      throw new VirtkeepError('io_failed', { operation: 'inject', path: point, reason: 'injected fault' });
    }
    if (action.type === 'pause') writeFileSync(`${action.file}.reached`, '');
  }
}

function parseList(text: string): Map<string, FaultAction> {
  const entries = text.split(',').filter(entry => entry.trim() !== '');
  return new Map(entries.map(entry => parseEntry(entry.trim())));
}

function parseEntry(entry: string): [string, FaultAction] {
  const separator = entry.indexOf('=');
  const point = entry.slice(0, separator);
  const action = entry.slice(separator + 1);
  if (separator < 0 || !POINT.test(point))
    throw new Error(`VIRTKEEP_FAULTS: "${entry}" is not <kind>.<step>.<when>=<action>`);
  if (action === 'kill' || action === 'fail') return [point, { type: action }];
  if (action.startsWith('pause:/')) return [point, { type: 'pause', file: action.slice('pause:'.length) }];
  throw new Error(`VIRTKEEP_FAULTS: "${action}" is not kill, fail or pause:/absolute/file`);
}

async function waitFor(file: string, signal: AbortSignal): Promise<void> {
  while (!existsSync(file)) await sleep(PAUSE_POLL_MS, signal);
}
