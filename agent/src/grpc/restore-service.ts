import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import type {
  RestoreServiceImplementation,
  StartRestoreRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import type { OperationRunner } from '../operations/runner.ts';
import type { Lock } from '../workflows/context.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { instantRestoreWorkflow } from '../workflows/instant-restore.ts';
import { type FoundFile, findBackupFile, openBackup } from '../workflows/restore/source.ts';
import { requireVouched } from '../workflows/restore/vouch.ts';
import { restoreWorkflow } from '../workflows/restore.ts';
import { standingDisks } from '../workflows/template/match.ts';
import { requireUuid } from './fields.ts';

/** `RestoreService`; what its methods promise stands in the proto. */
export function restoreService(
  runner: OperationRunner,
  dependencies: WorkflowDependencies,
): RestoreServiceImplementation {
  return {
    async start(request, { signal }) {
      const known = runner.replay(request.operationId, 'restore', request);
      if (known) return known;
      if (request.poolId !== '') requireUuid('pool_id', request.poolId);
      const file = await findBackupFile(await dependencies.pools(signal), request.file);
      const domainId = await domainIdOf(request, file.path, signal);
      await refuseForeign(dependencies, request, file, signal);
      const templateId = await templateIdOf(request, file.path, signal);
      return runner.start({
        id: request.operationId,
        kind: 'restore',
        request,
        entities: [
          { id: domainId, entityClass: EntityClass.DOMAIN },
          { id: request.fileId, entityClass: EntityClass.FILE },
        ],
        // what it makes is no copy of a VM: an identity that another node has is refused by the work itself
        mayBeCopies: 'all',
        locks: [...locksOf(domainId, file.path, request.instant), ...templateLocks(templateId)],
        cancellable: true,
        workflow: request.instant
          ? instantRestoreWorkflow(dependencies, request)
          : restoreWorkflow(dependencies, request),
      });
    },
  };
}

/** A VM that is restored instantly is used while its data are pulled in: it may be switched off and on. */
function locksOf(domainId: string, path: string, instant: boolean): Lock[] {
  const disks: Lock = { kind: 'domain', id: domainId, mode: 'exclusive' };
  const file: Lock = { kind: 'file', id: path, mode: 'shared' };
  return instant ? [disks, file] : [disks, { ...disks, kind: 'power' }, file];
}

/** What a thin clone is to stand on must not be changed or removed meanwhile. */
function templateLocks(templateId: string | null): Lock[] {
  return templateId === null ? [] : [{ kind: 'domain', id: templateId, mode: 'shared' }];
}

/** At once, for who asked; the operation looks again. A file that cannot be read is the operation's to tell. @throws VirtkeepError archive_foreign */
async function refuseForeign(
  dependencies: WorkflowDependencies,
  request: StartRestoreRequest,
  { path, filename }: FoundFile,
  signal: AbortSignal,
): Promise<void> {
  const backup = await openBackup(path, request.state, signal, 'none').catch(() => null);
  if (!backup) return;
  try {
    requireVouched(dependencies, backup, { filename, allowForeign: request.allowForeign });
  } finally {
    await backup.archive.close();
  }
}

/** Null for what is no thin clone's backup, and for a file that cannot be read: that is the operation's to tell. */
async function templateIdOf(
  { state }: StartRestoreRequest,
  path: string,
  signal: AbortSignal,
): Promise<string | null> {
  try {
    const { archive, manifest } = await openBackup(path, state, signal, 'none');
    await archive.close();
    return standingDisks(manifest).length > 0 ? (manifest.template?.domainId ?? null) : null;
  } catch {
    return null;
  }
}

/** In place of a lost VM the id is the archive's. */
async function domainIdOf(request: StartRestoreRequest, path: string, signal: AbortSignal): Promise<string> {
  if (!request.keepIdentity) {
    requireUuid('domain_id', request.domainId);
    return request.domainId;
  }
  const { archive, manifest } = await openBackup(path, request.state, signal, 'none');
  await archive.close();
  return manifest.vm.uuid;
}
