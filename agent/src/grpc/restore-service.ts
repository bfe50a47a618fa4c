import { VirtkeepError } from '@virtkeep/shared/errors';
import type {
  RestoreServiceImplementation,
  StartRestoreRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import type { OperationRunner } from '../operations/runner.ts';
import { type FoundFile, findBackupFile } from '../workflows/archives/find-file.ts';
import { openBackup } from '../workflows/archives/source.ts';
import { configRestoreWorkflow } from '../workflows/config-restore/config-restore.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { standingDisks } from '../workflows/family/match.ts';
import { applianceRestoreWorkflow, planApplianceRestore } from '../workflows/import/appliance-restore.ts';
import { refuseDriversWithoutVirtio } from '../workflows/import/virt-v2v.ts';
import { importDiskWorkflow, planImportDisk } from '../workflows/import-disk/import-disk.ts';
import { instantRestoreWorkflow } from '../workflows/restore/instant/instant-restore.ts';
import { restoreWorkflow } from '../workflows/restore/restore.ts';
import { requireVouched } from '../workflows/restore/vouch.ts';
import { requireUuid } from './fields.ts';
import { domainEntities, domainLocks, fileEntities, fileLock, startOperation } from './start-operation.ts';

/** `RestoreService`; what its methods promise stands in the proto. */
export function restoreService(
  runner: OperationRunner,
  dependencies: WorkflowDependencies,
): RestoreServiceImplementation {
  return {
    start: (request, { signal }) =>
      startOperation(runner, { kind: 'restore', request, signal }, async () => {
        if (request.poolId !== '') requireUuid('pool_id', request.poolId);
        const file = await findBackupFile(await dependencies.pools(signal), request.file);
        const { domainId, templateId } = await lookAt(dependencies, request, file, signal);
        return {
          entities: [...domainEntities(domainId), ...fileEntities(request.fileId)],
          // what it makes is no copy of a VM: an identity that another node has is refused by the work itself
          mayBeCopies: 'all',
          locks: [
            // one that is restored instantly is used while its data are pulled in: it may be switched off and on
            ...domainLocks(domainId, request.instant ? ['domain'] : ['domain', 'power']),
            fileLock(file.path, 'shared'),
            // what a thin clone is to stand on must not be changed or removed meanwhile
            ...(templateId === null ? [] : domainLocks(templateId, ['domain'], 'shared')),
          ],
          cancellable: true,
          workflow: request.instant
            ? instantRestoreWorkflow(dependencies, request)
            : restoreWorkflow(dependencies, request),
        };
      }),

    startConfig: (request, { signal }) =>
      startOperation(runner, { kind: 'config_restore', request, signal }, async () => {
        requireUuid('domain_id', request.domainId);
        const file = await findBackupFile(await dependencies.pools(signal), request.file);
        return {
          entities: [...domainEntities(request.domainId), ...fileEntities(request.fileId)],
          locks: [...domainLocks(request.domainId, ['domain', 'power']), fileLock(file.path, 'shared')],
          cancellable: true,
          workflow: configRestoreWorkflow(dependencies, request),
        };
      }),

    startAppliance: (request, { signal }) =>
      startOperation(runner, { kind: 'appliance_restore', request, signal }, async () => {
        requireUuid('domain_id', request.domainId);
        if (request.poolId !== '') requireUuid('pool_id', request.poolId);
        if (request.all && request.name !== '')
          throw new VirtkeepError('conflicting_fields', { first: 'all', second: 'name', field: 'all' });
        refuseDriversWithoutVirtio(request);
        const pools = await dependencies.pools(signal);
        const file = await findBackupFile(pools, request.file);
        const plan = planApplianceRestore(request, file, pools, dependencies.nodeName);
        return {
          entities: [...domainEntities(request.domainId), ...fileEntities(request.fileId)],
          locks: [...domainLocks(request.domainId, ['domain', 'power']), fileLock(file.path, 'shared')],
          cancellable: true,
          workflow: applianceRestoreWorkflow(dependencies, request, plan),
        };
      }),

    importDisk: (request, { signal }) =>
      startOperation(runner, { kind: 'import_disk', request, signal }, async () => {
        const { domainId, newDomain } = request;
        requireUuid('domain_id', domainId);
        if (request.poolId !== '') requireUuid('pool_id', request.poolId);
        const pools = await dependencies.pools(signal);
        const file = await findBackupFile(pools, request.file);
        const plan = planImportDisk(request, file, pools, dependencies.nodeName);
        return {
          entities: [...domainEntities(domainId), ...fileEntities(request.fileId)],
          // what is made new is no copy of a VM
          ...(newDomain ? { mayBeCopies: 'all' as const } : {}),
          // one that is there may be started and stopped meanwhile
          locks: [
            ...domainLocks(domainId, newDomain ? ['domain', 'power'] : ['domain']),
            fileLock(file.path, 'shared'),
          ],
          cancellable: true,
          workflow: importDiskWorkflow(dependencies, request, plan),
        };
      }),
  };
}

/**
 * What must be known before the operation begins, which looks again: whether it may be, what becomes of whom, and what of others
 * it stands on. A file that cannot be read is the operation's to tell, unless it says whose place the VM takes.
 * @throws VirtkeepError invalid_uuid, archive_foreign; with `keep_identity` what `openBackup` raises
 */
async function lookAt(
  { judge }: WorkflowDependencies,
  { keepIdentity, domainId, state, allowForeign }: StartRestoreRequest,
  { path, filename }: FoundFile,
  signal: AbortSignal,
): Promise<{ domainId: string; templateId: string | null }> {
  if (!keepIdentity) requireUuid('domain_id', domainId);
  const backup = await openBackup(path, state, signal, 'none').catch(error => {
    if (keepIdentity) throw error;
    return null;
  });
  if (!backup) return { domainId, templateId: null };
  const { archive, manifest } = backup;
  await archive.close();
  requireVouched(judge(archive), { filename, allowForeign });
  return {
    domainId: keepIdentity ? manifest.vm.uuid : domainId,
    templateId: standingDisks(manifest).length > 0 ? (manifest.template?.domainId ?? null) : null,
  };
}
