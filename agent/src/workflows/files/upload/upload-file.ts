/**
 * The operation of an upload: it waits until all bytes have come, compares their hash, and gives the file its name by a hard link, which
 * takes nobody's place. Its side effects stand in the upload's record and not in the journal, since they outlive it: when the agent is
 * stopped the operation ends, and the next one goes on with what has come; one whose bytes come in one go is over then. A cancel removes
 * everything. A stop of the agent after the file got its name leaves it there: it is whole.
 */
import { orAborted } from '@virtkeep/shared/abort';
import { lstatBig } from '@virtkeep/shared/beneath';
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { removePath } from '@virtkeep/shared/files';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { keepName, publishNew } from '../../../archive/index.ts';
import { isOwnFile } from '../../../images/index.ts';
import type { OperationContext, Workflow } from '../../context.ts';
import { forgetClaim, isPublished } from './place.ts';
import type { Receiver } from './receiver.ts';
import type { UploadRecord, UploadRecords } from './record.ts';

/** After these it can be gone on with. */
const GOES_ON = ['interrupted', 'io_failed', 'disk_full', 'journal_failed'] as const;

export interface UploadWork {
  id: string;
  records: UploadRecords;
  receiver: Receiver;
  /** Removes what has come, and the record. */
  discard: () => Promise<void>;
  filesChanged: (poolId: string) => void;
  /** What a scan tells of the file. */
  look: LookAtFile;
}

/** @returns undefined for what is no backup file by its name. @throws VirtkeepError io_failed, canceled */
export type LookAtFile = (
  place: { poolId: string; poolPath: string; filename: string },
  signal: AbortSignal,
) => Promise<BackupFile | undefined>;

/** The workflow's steps, in order. */
export const UPLOAD_STEPS = ['receive', 'hash', 'publish'] as const;

/** The workflow. Result: `{"pool_id","filename","path","size","sha256"}`. */
export function uploadFile(work: UploadWork): Workflow {
  return async context => {
    try {
      await receive(context, work);
      const record = await compare(context, work);
      await context.step('publish', () => publish(record));
      const { poolId, filename, path, sizeBytes, sha256 } = record;
      work.filesChanged(poolId);
      const file = await look(context, work, record);
      const value = { poolId, filename, path, size: BigInt(sizeBytes!), sha256, file };
      context.commit({ $case: 'uploadFile', value });
      work.records.change(work.id, { isDone: true });
    } catch (error) {
      await work.receiver.close();
      if (isOver(context, error, work) && !isDone(work)) await undo(work);
      throw error;
    } finally {
      await work.receiver.close();
    }
  };
}

/** Also of a file that has its name already: its locks have kept others from it. */
async function undo({ id, records, discard, filesChanged }: UploadWork): Promise<void> {
  const record = records.find(id)!;
  if (record.isVerified && (await isPublished(record))) {
    await removePath(record.path);
    filesChanged(record.poolId);
  }
  await discard();
}

/** The file is there, whatever can be told of it now. */
async function look({ signal, warn }: OperationContext, { look }: UploadWork, record: UploadRecord) {
  try {
    return await look(record, signal);
  } catch (error) {
    if (!signal.aborted) warn(`The file is there and could not be looked at yet: ${reasonOf(error)}`);
    return undefined;
  }
}

const isDone = ({ id, records }: UploadWork): boolean => records.find(id)?.isDone ?? true;

/** Nobody is going to go on with it. */
function isOver({ signal }: OperationContext, error: unknown, { id, records }: UploadWork): boolean {
  const reason: unknown = signal.aborted ? signal.reason : error;
  // it has no next operation
  if (records.find(id)?.isOneWrite) return !hasKey(reason, 'journal_failed');
  return reason instanceof VirtkeepError && !GOES_ON.some(key => hasKey(reason, key));
}

async function receive({ step, progress, signal }: OperationContext, work: UploadWork): Promise<void> {
  const { receiver, records, id } = work;
  await step('receive', async () => {
    const { sizeBytes, durableBytes } = records.find(id)!;
    progress.total(sizeBytes ?? 0);
    progress.done(durableBytes);
    receiver.progressed = bytes => progress.done(bytes);
    await orAborted(receiver.whole, signal);
  });
}

/** @throws VirtkeepError upload_hash, io_failed */
async function compare(
  { step, progress, signal }: OperationContext,
  { id, records, receiver }: UploadWork,
): Promise<UploadRecord> {
  return step('hash', async () => {
    const record = records.find(id)!;
    // it may have its name already, and no other
    if (record.isVerified) return record;
    progress.total(record.sizeBytes ?? 0);
    const found = await receiver.sha256(signal, bytes => progress.done(bytes));
    const { sha256: expected } = record;
    if (expected !== '' && expected !== found) throw new VirtkeepError('upload_hash', { found, expected });
    return records.change(id, { sha256: found, isVerified: true });
  });
}

async function publish(record: UploadRecord): Promise<void> {
  const { path, partial } = record;
  if (await isPublished(record)) {
    // a stop of the agent came between
    await removePath(partial.path);
    await keepName(path);
  } else {
    await requireWhole(record);
    await publishNew(partial.path, path);
  }
  await forgetClaim(record);
}

/** Another upload may have been begun under the hidden name, by another node that has the pool. @throws VirtkeepError io_failed */
async function requireWhole({ partial, sizeBytes }: UploadRecord): Promise<void> {
  const isWhole = (await isOwnFile(partial)) && Number((await lstatBig(partial.path)).size) === sizeBytes;
  if (isWhole) return;
  const reason = 'another file is in its place';
  throw new VirtkeepError('io_failed', { operation: 'publishing', path: partial.path, reason });
}
