/**
 * A backup of each VM that a foreign file describes, one after another: all of them or none. The steps of `convert.ts` are gone through once for
 * each; the archives stand under their names from then on, and go unless the last one succeeds, too.
 */
import type { ConvertBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { requireInFile } from '../config-restore/choose-networks.ts';
import type { Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { type ConvertPlan, closeHeld, convert, type Held } from './convert.ts';
import { choicesOf } from './open-foreign.ts';

/** The workflow: new archives; a failure or a cancel leaves nothing of any. */
export function convertAllWorkflow(
  dependencies: WorkflowDependencies,
  request: ConvertBackupRequest,
  plan: ConvertPlan,
): Workflow {
  return async context => {
    const choices = await choicesOf(plan.source, request, context.signal);
    const names = choices.flatMap(({ networks }) => networks);
    requireInFile(request.networks, names, plan.source.filename);
    const all: Held[] = [];
    const files: BackupFile[] = [];
    let signedBy: string | undefined;
    try {
      for (const { networks, ...choice } of choices) {
        const held: Held = {};
        all.push(held);
        const own = { ...request, ...choice, networks: onlyOf(request.networks, networks) };
        const made = await convert(dependencies, own, { ...plan, held }, context);
        files.push(made.file!);
        signedBy = made.signedBy;
      }
      const driversInjected = request.injectDrivers || undefined;
      context.commit({ $case: 'convertAll', value: { files, driversInjected, signedBy } });
    } finally {
      for (const held of all) await closeHeld(held).catch(error => context.log.warn('not closed', { error }));
    }
    for (const { name } of all) await name!.free();
    dependencies.filesChanged(plan.target.id);
  };
}

/** What is chosen for the networks of one VM. */
const onlyOf = (chosen: Readonly<Record<string, string>>, names: readonly string[]): Record<string, string> =>
  Object.fromEntries(Object.entries(chosen).filter(([name]) => names.includes(name)));
