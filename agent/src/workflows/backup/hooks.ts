/**
 * The node's hooks around a backup: before anything is done to the VM, when all is done, or when it was given up.
 *
 * What is to be told in the end is declared like all other effects, so that the next agent tells it after a crash: `backup-abort` before the
 * hook is run for the first time, `backup-end` with the commit. So each may come twice, and `backup-abort` without `backup-start`.
 */
import { isVirtkeepError } from '@virtkeep/shared/errors';
import type { BackupPhase, HookFacts } from '../../hooks.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import type { EffectHandle } from '../effect.ts';
import type { BackupJob } from './job.ts';

/** The step in which the hook is run before a backup, for the tests that kill the agent in it. */
export const HOOK_STEP = 'hook';

/** What the hooks of one backup are told. */
export class ToldHooks {
  readonly #context: OperationContext;
  readonly #facts: HookFacts;
  #abort: EffectHandle | undefined;

  constructor(context: OperationContext, { facts: { config }, target, base, compressed }: BackupJob) {
    this.#context = context;
    this.#facts = {
      ...{ VM_ID: config.uuid, VM_NAME: config.name, OPERATION_ID: context.id },
      ...{ POOL: target.id, POOL_NAME: target.name, FILE: base?.path ?? '' },
      ...{ INCREMENT: base ? '1' : '0', COMPRESSED: compressed ? '1' : '0' },
    };
  }

  /** @throws VirtkeepError hook_failed */
  async start({ hooks }: Pick<WorkflowDependencies, 'hooks'>): Promise<void> {
    const { signal, log } = this.#context;
    this.#abort = this.#declare('backup-abort', { OUTCOME: 'failed', ERROR_KEY: 'interrupted' });
    await this.#context.step(HOOK_STEP, () => hooks!.run('backup-start', this.#facts, { signal, log }));
  }

  /** To be called right before the commit. @param path of the archive */
  succeeded(path: string): void {
    this.#declare('backup-end', { OUTCOME: 'success', FILE: path });
    this.#abort = undefined;
  }

  /** Why it was given up; harmless once it has succeeded. */
  failed(error: unknown): void {
    if (this.#abort === undefined) return;
    const key = isVirtkeepError(error) ? error.msgKey : 'internal';
    const OUTCOME = key === 'canceled' ? 'canceled' : 'failed';
    const former = this.#abort;
    this.#abort = this.#declare('backup-abort', { OUTCOME, ERROR_KEY: key });
    former.keep();
  }

  #declare(phase: Exclude<BackupPhase, 'backup-start'>, told: HookFacts): EffectHandle {
    const facts = { ...this.#facts, ...told };
    const when = phase === 'backup-end' ? 'success' : 'failure';
    return this.#context.effects.begin({ type: 'backup_hook', phase, facts }, when);
  }
}
