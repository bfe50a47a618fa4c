/** What was done before a story begins: workflows that nothing happened to. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { ActiveOperation } from '../../../agent/src/operations/active.ts';
import { Journal } from '../../../agent/src/operations/journal.ts';
import { backupWorkflow } from '../../../agent/src/workflows/backup/backup.ts';
import type { Workflow } from '../../../agent/src/workflows/context.ts';
import { createSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/create.ts';
import { undoEffects } from '../../../agent/src/workflows/undo/recover.ts';
import { ALONE, silent, type World } from '../world.ts';

/** Runs a workflow to its end. @returns its result */
export async function perform(
  world: World,
  workflowOf: (operationId: string) => Workflow,
  undoEffect = undoEffects(world.dependencies),
): Promise<Record<string, unknown>> {
  const path = join(world.root, 'performed.db');
  const journal = new Journal(path);
  const message = Operation.fromPartial({
    ...{ id: newId(), kind: 'performed', state: OperationState.RUNNING, created: new Date() },
  });
  const record = { message, fingerprint: '', locks: [], committed: false };
  journal.insertOperation(record);
  const faults = { active: false, reach: async () => {}, middle: () => undefined } as never;
  const operation = new ActiveOperation(record, {
    ...{ journal, undoEffect, faults, log: silent, changed: () => {} },
  });
  try {
    await workflowOf(message.id)(operation.context(ALONE));
    const left = await operation.effects.undoAll(
      () => AbortSignal.timeout(60_000),
      () => {},
    );
    if (left.length > 0) throw new Error(`not undone: ${JSON.stringify(left)}`);
    return JSON.parse(operation.message.resultJson) as Record<string, unknown>;
  } finally {
    journal.close();
    for (const ending of ['', '-wal', '-shm']) rmSync(`${path}${ending}`, { force: true });
  }
}

/** A saved state without memory. */
export async function makeState(world: World, domainId: string, name: string): Promise<void> {
  const request = { domainId, name, description: '', memory: false, requireConsistency: false };
  await perform(world, operationId =>
    createSnapshotWorkflow(world.dependencies, { operationId, ...request } as never),
  );
}

/** A backup file: where it is, and as a request names it. */
export interface MadeBackup {
  path: string;
  id: string;
  ref: { poolId: string; filename: string };
}

/** A full backup. */
export async function makeBackup(
  world: World,
  domainId: string,
  options: Partial<StartBackupRequest> = {},
): Promise<MadeBackup> {
  const id = newId();
  const result = await perform(world, operationId =>
    backupWorkflow(
      world.dependencies,
      StartBackupRequest.fromPartial({ operationId, domainId, fileId: id, ...options }),
    ),
  );
  const { filename } = result.file as { filename: string };
  return { path: join(world.backups, filename), id, ref: { poolId: world.poolRecord.id, filename } };
}
