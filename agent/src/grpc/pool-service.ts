import { VirtkeepError } from '@virtkeep/shared/errors';
import type {
  ListFilesResponse,
  Pool,
  PoolServiceImplementation,
  ScanPoolRequest,
  UpdatePoolRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { isUuid } from '@virtkeep/shared/ids';
import type { Inventory } from '../inventory/index.ts';
import type { OperationRunner } from '../operations/runner.ts';
import {
  type BackupFiles,
  backupTargetRefusal,
  readablePool,
  type Settings,
  setChosenBase,
  setPoolMarks,
} from '../pools/index.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { scanPool } from '../workflows/files/scan-pool.ts';
import { requireDescription } from './fields.ts';
import { filePieces } from './file-pieces.ts';
import { poolEntities, startOperation } from './start-operation.ts';

export interface PoolServiceOptions {
  inventory: Inventory;
  backupFiles: BackupFiles;
  runner: OperationRunner;
  settings: Settings;
  workflows: Pick<WorkflowDependencies, 'pools' | 'nodeName'>;
}

/** `PoolService`; what its methods promise stands in the proto. */
export function poolService(options: PoolServiceOptions): PoolServiceImplementation {
  const { inventory, backupFiles } = options;
  return {
    list: async () => ({ pools: inventory.poolMessages() }),
    get: async ({ id }, { signal }) => {
      await poolById(inventory, id);
      // who asks for one wants to know what is free on it now
      await inventory.pools(signal);
      return inventory.pool(id).message;
    },
    update: async request => update(options, request),
    scan: async (request, { signal }) => scan(options, request, signal),
    listFiles: async ({ poolId }) => {
      await poolById(inventory, poolId);
      return { files: backupFiles.files(poolId) };
    },
    streamFiles: ({ poolId }, { signal }) => streamFiles(options, poolId, signal),
  };
}

/** @throws VirtkeepError pool_not_found, libvirt_unreachable, invalid_field, journal_failed */
async function update(
  { inventory, settings }: PoolServiceOptions,
  request: UpdatePoolRequest,
): Promise<Pool> {
  const { id, readonly, outside, description, isBase } = request;
  const { record } = await poolById(inventory, id);
  requireDescription(description);
  const isOutsideKind = record.kind === 'outside';
  if (isOutsideKind && (readonly === false || outside === false))
    throw new VirtkeepError('pool_outside', { pool: record.name });
  if (isBase === true) {
    // it may be off at present, but it must be able to hold backups
    const marked = { readonly: readonly ?? record.readonly, outside: outside ?? record.outside };
    const refusal = backupTargetRefusal({ ...record, ...marked, active: true, mounted: true });
    if (refusal) throw refusal;
  }
  setPoolMarks(settings, id, { readonly, outside, description });
  if (isBase === true) setChosenBase(settings, id);
  if (isBase === false && record.isBase) setChosenBase(settings, null);
  inventory.marksChanged();
  return inventory.pool(id).message;
}

/**
 * The pool is held together with other readers: a scan disturbs nobody. What is not there has no files either, and whoever is told so takes
 * them for gone: so the pool is asked for before and, since its mount may go meanwhile, again before anything is told.
 */
function scan(
  { inventory, backupFiles, runner, workflows }: PoolServiceOptions,
  request: ScanPoolRequest,
  signal: AbortSignal,
) {
  const { poolId, thorough, filesApart } = request;
  return startOperation(runner, { kind: 'scan_pool', request, signal }, async () => {
    await poolById(inventory, poolId);
    await requireThere(workflows, poolId, signal);
    return {
      entities: poolEntities(poolId),
      locks: [{ kind: 'pool', id: poolId, mode: 'shared' }],
      cancellable: true,
      heavy: false,
      workflow: scanPool(async signal => {
        await inventory.refreshFiles(poolId, { signal, thorough });
        await requireThere(workflows, poolId, signal);
        return { files: backupFiles.found(poolId), skipped: backupFiles.skipped(poolId) };
      }, filesApart),
    };
  });
}

/** What the agent knows, and not of a run before, nor of a directory that has lost its mount: what is missing here counts as gone. */
async function* streamFiles(
  { inventory, backupFiles, workflows }: PoolServiceOptions,
  poolId: string,
  signal: AbortSignal,
): AsyncGenerator<ListFilesResponse> {
  await poolById(inventory, poolId);
  if (!backupFiles.hasLookedAt(poolId)) await inventory.refreshFiles(poolId, { signal, thorough: false });
  await requireThere(workflows, poolId, signal);
  yield* filePieces(backupFiles.found(poolId));
}

/** @throws VirtkeepError pool_not_found, pool_not_active, pool_not_mounted: unless it is one of devices alone, which never has files */
async function requireThere(
  { pools: find, nodeName }: PoolServiceOptions['workflows'],
  poolId: string,
  signal: AbortSignal,
): Promise<void> {
  const pools = await find(signal);
  if (pools.some(({ id, hasDirectory }) => id === poolId && !hasDirectory)) return;
  readablePool(pools, poolId, nodeName);
}

/** @throws VirtkeepError invalid_uuid, pool_not_found, libvirt_unreachable */
async function poolById(inventory: Inventory, id: string): Promise<ReturnType<Inventory['pool']>> {
  if (!isUuid(id)) throw new VirtkeepError('invalid_uuid', { value: id });
  await inventory.complete();
  return inventory.pool(id);
}
