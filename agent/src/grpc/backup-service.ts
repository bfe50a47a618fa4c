import { VirtkeepError } from '@virtkeep/shared/errors';
import type {
  BackupServiceImplementation,
  RecompressBackupRequest,
  ShowBackupResponse,
  StartBackupRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { withoutSecrets } from '../domain-xml/index.ts';
import { fromLibvirt } from '../libvirt/errors.ts';
import type { OperationRunner } from '../operations/runner.ts';
import { backupTargetRefusal, backupTypeOf } from '../pools/index.ts';
import { backupFileOf, foreignFileOf } from '../workflows/archives/backup-file.ts';
import { type FoundFile, findBackupFile } from '../workflows/archives/find-file.ts';
import { lookIntoBackup, type OpenedBackup } from '../workflows/archives/source.ts';
import { backupWorkflow } from '../workflows/backup/backup.ts';
import { fallbackReason } from '../workflows/backup/base.ts';
import { definitionTypeOf } from '../workflows/config-restore/definition-file.ts';
import { showDefinition } from '../workflows/config-restore/show-definition.ts';
import type { Lock } from '../workflows/context.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { exportBackupWorkflow, exportTarget } from '../workflows/export/export.ts';
import { matchTemplate } from '../workflows/family/match.ts';
import { deleteBackupWorkflow } from '../workflows/files/delete-backup.ts';
import { downloadChunks } from '../workflows/files/download.ts';
import { planRecompress, recompressWorkflow } from '../workflows/files/recompress.ts';
import { refreshBackupWorkflow } from '../workflows/files/refresh-backup.ts';
import {
  backupConfiguration,
  backupWarnings,
  screenBackup,
  signatureWarnings,
} from '../workflows/files/show-backup.ts';
import { verifyWorkflow } from '../workflows/files/verify.ts';
import { convertBackupWorkflow, planConvert } from '../workflows/import/convert.ts';
import { convertAllWorkflow } from '../workflows/import/convert-all.ts';
import { refuseDriversWithoutVirtio } from '../workflows/import/virt-v2v.ts';
import { showImage } from '../workflows/import-disk/show-image.ts';
import { trimWorkflow } from '../workflows/restore-points/trim.ts';
import { layerLocks } from './ask-domain.ts';
import { requireUuid } from './fields.ts';
import {
  domainEntities,
  fileEntities,
  fileLock,
  type OperationPlan,
  startOperation,
} from './start-operation.ts';

/** Above it zstd takes many times as long for a few percent. */
const MAX_COMPRESSION_LEVEL = 9;

interface ConversionCall {
  request: RecompressBackupRequest;
  /** Of the copy the source stays. */
  kind: 'recompress' | 'recompress_copy';
  signal: AbortSignal;
}

async function planConversion(
  dependencies: WorkflowDependencies,
  { request, kind, signal }: ConversionCall,
): Promise<OperationPlan> {
  checkLevel(request.compressionLevel);
  const pools = await dependencies.pools(signal);
  const file = await findBackupFile(pools, request.file);
  const keepsSource = kind === 'recompress_copy';
  const plan = planRecompress(request, { source: file, keepsSource }, pools, dependencies.nodeName);
  return {
    entities: fileEntities(request.fileId),
    locks: [fileLock(file.path, keepsSource ? 'shared' : 'exclusive')],
    cancellable: true,
    workflow: recompressWorkflow(dependencies, request, plan),
  };
}

/** `BackupService`; what its methods promise stands in the proto. */
export function backupService(
  runner: OperationRunner,
  dependencies: WorkflowDependencies,
): BackupServiceImplementation {
  return {
    start: (request, { signal }) =>
      startOperation(runner, { kind: 'backup', request, signal }, async () => {
        checkStart(request);
        const { locks, further } = await layerLocks(dependencies.libvirt, request.domainId);
        return {
          entities: [...filesOf(request), ...domainEntities(request.domainId)],
          locks: [...locks, ...(await fileLocksOf(dependencies, request, signal))],
          further,
          cancellable: true,
          workflow: backupWorkflow(dependencies, request),
        };
      }),

    async show(request, { signal }) {
      const pools = await dependencies.pools(signal);
      const file = await findBackupFile(pools, request.file);
      const type = definitionTypeOf(file.filename);
      if (type) return showDefinition({ ...dependencies, signal }, file, type, request);
      if (backupTypeOf(file.filename) === 'disk') return showImage(file.path, signal);
      const backup = await lookIntoBackup(file.path, request.state, signal);
      const { archive, manifest, state, xml } = backup;
      const signature = dependencies.judge(archive);
      const screened = await screenBackup(backup, signature.trust, signal).finally(() => archive.close());
      const template = await matchTemplate(dependencies, manifest, signal).catch(error => {
        throw fromLibvirt(error, 'show_backup');
      });
      const response: ShowBackupResponse = {
        file: { ...shownFile(file, backup), manifestJson: JSON.stringify(backup.newest) },
        xml: withoutSecrets(xml),
        configuration: backupConfiguration(manifest, state, xml),
        warnings: [
          ...backupWarnings(manifest, state, signature),
          ...signatureWarnings(signature),
          ...backup.unknown.map(text => ({ key: 'not_recorded', text })),
          ...screened,
          ...template.faults,
        ],
        signature,
        systems: [],
        networks: [],
      };
      return response;
    },

    refresh: (request, { signal }) =>
      startOperation(runner, { kind: 'refresh_backup', request, signal }, async () => {
        const file = await findBackupFile(await dependencies.pools(signal), request.file);
        const type = definitionTypeOf(file.filename);
        if (type !== 'OVA')
          throw new VirtkeepError('file_not_definition', { file: file.filename, type: type ?? 'tar' });
        return {
          entities: fileEntities(request.fileId),
          locks: [fileLock(file.path, 'shared')],
          cancellable: true,
          heavy: false,
          workflow: refreshBackupWorkflow(dependencies, file, type),
        };
      }),

    verify: (request, { signal }) =>
      startOperation(runner, { kind: 'verify', request, signal }, async () => {
        const file = await findBackupFile(await dependencies.pools(signal), request.file);
        return {
          entities: fileEntities(request.fileId),
          locks: [fileLock(file.path, 'shared')],
          cancellable: true,
          workflow: verifyWorkflow(dependencies, file.path),
        };
      }),

    recompress: (request, { signal }) => convert({ request, kind: 'recompress', signal }),
    recompressCopy: (request, { signal }) => convert({ request, kind: 'recompress_copy', signal }),

    convert: (request, { signal }) =>
      startOperation(
        runner,
        { kind: request.all ? 'convert_all' : 'convert_backup', request, signal },
        async () => {
          checkLevel(request.compressionLevel);
          refuseDriversWithoutVirtio(request);
          const pools = await dependencies.pools(signal);
          const file = await findBackupFile(pools, request.file);
          const plan = planConvert(request, file, pools, dependencies.nodeName);
          return {
            entities: fileEntities(request.fileId),
            locks: [fileLock(file.path, 'shared')],
            cancellable: true,
            workflow: request.all
              ? convertAllWorkflow(dependencies, request, plan)
              : convertBackupWorkflow(dependencies, request, plan),
          };
        },
      ),

    export: (request, { signal }) =>
      startOperation(runner, { kind: 'export_backup', request, signal }, async () => {
        const pools = await dependencies.pools(signal);
        const file = await findBackupFile(pools, request.file);
        const target = exportTarget(request, file, pools, dependencies.nodeName);
        return {
          entities: fileEntities(request.fileId),
          locks: [fileLock(file.path, 'shared')],
          cancellable: true,
          workflow: exportBackupWorkflow(dependencies, request, target),
        };
      }),

    trim: (request, { signal }) =>
      startOperation(runner, { kind: 'trim', request, signal }, async () => {
        if (request.keepStates < 1)
          throw new VirtkeepError('invalid_field', { field: 'keep_states', reason: 'must be at least 1' });
        const file = await findBackupFile(await dependencies.pools(signal), request.file);
        const refusal = backupTargetRefusal(file.pool, dependencies.nodeName);
        if (refusal) throw refusal;
        return {
          entities: fileEntities(request.fileId),
          locks: [fileLock(file.path, 'exclusive')],
          cancellable: true,
          workflow: trimWorkflow(dependencies, request, file),
        };
      }),

    async *download(request, { signal }) {
      const file = await findBackupFile(await dependencies.pools(signal), request.file);
      const release = runner.hold('download', [fileLock(file.path, 'shared')]);
      try {
        yield* downloadChunks(file.path, request, signal);
      } finally {
        release();
      }
    },

    delete: (request, { signal }) =>
      startOperation(runner, { kind: 'delete_backup', request, signal }, async () => {
        const { path, pool, filename } = await findBackupFile(await dependencies.pools(signal), request.file);
        const refusal = backupTargetRefusal(pool, dependencies.nodeName);
        if (refusal) throw refusal;
        // one definition of it would go, and the data stay
        const type = backupTypeOf(filename);
        if (type === 'virtnbdbackup')
          throw new VirtkeepError('file_not_removable', { file: filename, program: type });
        return {
          entities: fileEntities(request.fileId),
          locks: [fileLock(path, 'exclusive')],
          cancellable: false,
          heavy: false,
          workflow: deleteBackupWorkflow(dependencies, path, () => dependencies.filesChanged(pool.id)),
        };
      }),
  };

  function convert(call: ConversionCall) {
    return startOperation(runner, call, () => planConversion(dependencies, call));
  }
}

/** The archive's own record, as the inventory has it. */
function shownFile({ pool, filename, path }: FoundFile, { archive, newest }: OpenedBackup): BackupFile {
  const place = { poolId: pool.id, filename, path, sizeBytes: archive.sizeBytes };
  return archive.manifest === null ? foreignFileOf(place, newest) : backupFileOf(place, newest);
}

/**
 * The archive that is to be extended. One that cannot be found needs no lock when a full backup may stand in.
 * @throws VirtkeepError pool_not_found, file_not_found and what else `findBackupFile` raises
 */
async function fileLocksOf(
  dependencies: WorkflowDependencies,
  request: StartBackupRequest,
  signal: AbortSignal,
): Promise<Lock[]> {
  if (!request.extend) return [];
  try {
    const { path } = await findBackupFile(await dependencies.pools(signal), request.extend);
    return [fileLock(path, 'exclusive')];
  } catch (error) {
    if (request.fallbackFull && fallbackReason(error) !== null) return [];
    throw error;
  }
}

/** The file that is extended, and the one that is made when that cannot be. */
function filesOf({ extend, extendFileId, fileId }: StartBackupRequest) {
  const ids = extend && extendFileId !== '' ? [extendFileId, fileId] : [fileId];
  return fileEntities(...ids.filter(id => id !== ''));
}

/** @throws VirtkeepError invalid_uuid, invalid_field */
function checkStart(request: StartBackupRequest): void {
  requireUuid('domain_id', request.domainId);
  if (!request.extend || request.fallbackFull) requireUuid('file_id', request.fileId);
  if (request.extendFileId !== '') requireUuid('extend_file_id', request.extendFileId);
  if (request.poolId !== '') requireUuid('pool_id', request.poolId);
  for (const id of request.excludeVdisks) requireUuid('exclude_vdisks', id);
  checkLevel(request.compressionLevel);
  checkLimits(request);
  checkTargets(request);
}

/** An operation keeps to no more limits: its own, and those of its task, pool and node. */
const MAX_LIMITS = 16;
const MAX_LIMIT_KEY = 128;

function checkLimits({ limits }: StartBackupRequest): void {
  const refuse = (reason: string) => new VirtkeepError('invalid_field', { field: 'limits', reason });
  if (limits.length > MAX_LIMITS) throw refuse(`must be at most ${MAX_LIMITS}`);
  for (const { key, bytesPerSecond } of limits) {
    if (key === '' || key.length > MAX_LIMIT_KEY) throw refuse(`a key has 1 to ${MAX_LIMIT_KEY} characters`);
    if (bytesPerSecond < 1n) throw refuse('a rate is at least 1');
  }
}

const MAX_TARGETS = 64;
const MAX_TARGET_MS = 60_000;

function checkTargets({ latencyTargets }: StartBackupRequest): void {
  const refuse = (reason: string) => new VirtkeepError('invalid_field', { field: 'latency_targets', reason });
  if (latencyTargets.length > MAX_TARGETS) throw refuse(`must be at most ${MAX_TARGETS}`);
  for (const { targetMs } of latencyTargets)
    if (targetMs < 1 || targetMs > MAX_TARGET_MS) throw refuse(`a target is 1 to ${MAX_TARGET_MS} ms`);
}

function checkLevel(level: number): void {
  if (level > MAX_COMPRESSION_LEVEL)
    throw new VirtkeepError('invalid_field', {
      field: 'compression_level',
      reason: `must be 1 to ${MAX_COMPRESSION_LEVEL}, or 0 for the default`,
    });
}
