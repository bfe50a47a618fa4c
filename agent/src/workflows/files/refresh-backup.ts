import { ShowBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { FoundFile } from '../archives/find-file.ts';
import type { DefinitionType } from '../config-restore/definition-file.ts';
import { showDefinition } from '../config-restore/show-definition.ts';
import type { Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';

/** What a foreign file would restore, read anew: of one that is packed as a whole that takes as long as unpacking it. */
export function refreshBackupWorkflow(
  dependencies: WorkflowDependencies,
  file: FoundFile,
  type: DefinitionType,
): Workflow {
  return async context => {
    const { signal, progress } = context;
    const reading = { ...dependencies, signal, onBytes: (bytes: number) => progress.done(bytes) };
    const shown = await context.step('read', () =>
      showDefinition(reading, file, type, ShowBackupRequest.create()),
    );
    context.commit({ $case: 'refreshBackup', value: { shown } });
  };
}
