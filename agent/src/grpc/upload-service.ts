import { withTimeout } from '@virtkeep/shared/abort';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type {
  Upload,
  UploadServiceImplementation,
  WriteUpload,
  WriteUploadRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/upload';
import { fromErrorMessage } from '@virtkeep/shared/grpc-status';
import type { OperationRunner } from '../operations/runner.ts';
import type { Part, UploadRecord, Uploads } from '../workflows/files/upload/index.ts';
import { requireUuid } from './fields.ts';
import { fileLock, poolEntities } from './start-operation.ts';

/** Longer than the controller can be set to wait for who uploads through it (an hour): that is what counts there. */
const IDLE_MS = 3_900_000;
const KIND = 'upload_file';
const DIGEST_BYTES: Record<string, number> = { sha256: 32, sha1: 20 };

/** `UploadService`; what its methods promise stands in the proto. */
export function uploadService(
  runner: OperationRunner,
  uploads: Uploads,
  /** How long a caller of `Write` may send nothing. */
  idleMs = IDLE_MS,
): UploadServiceImplementation {
  const { turns } = uploads;
  const message = (record: UploadRecord) => uploadMessage(uploads, record);
  const plan = ({ id, path, poolId }: UploadRecord, operationId: string) => ({
    entities: poolEntities(poolId),
    locks: [fileLock(path, 'exclusive')],
    cancellable: true,
    heavy: false,
    workflow: uploads.workflow(id, operationId),
  });
  return {
    create(request, { signal }) {
      const { operationId: id } = request;
      requireUuid('operation_id', id);
      requireSha256(request.sha256);
      // a repeated call waits for the first one
      return turns.run(id, async () => {
        const existing = runner.replay(id, KIND, request);
        if (existing) return existing;
        const { poolId, filename, size, sha256, owner, oneWrite: isOneWrite } = request;
        const sizeBytes = size === undefined ? undefined : Number(size);
        const record = await uploads.create(
          { id, poolId, filename, sizeBytes, sha256, owner, isOneWrite },
          signal,
        );
        try {
          return runner.start({ ...plan(record, id), id, kind: KIND, request });
        } catch (error) {
          uploads.giveUp(id, id);
          await uploads.remove(id);
          throw error;
        }
      });
    },

    resume(request) {
      const { operationId, id } = request;
      requireUuid('operation_id', operationId);
      return turns.run(id, async () => {
        const existing = runner.replay(operationId, KIND, request);
        if (existing) return existing;
        const record = uploads.get(id);
        if (record.isDone || uploads.operationOf(id) !== undefined)
          throw new VirtkeepError('upload_busy', { id });
        try {
          return runner.start({ ...plan(record, operationId), id: operationId, kind: KIND, request });
        } catch (error) {
          uploads.giveUp(id, operationId);
          throw error;
        }
      });
    },

    async get({ id }) {
      return message(uploads.get(id));
    },

    async write(requests, { signal }) {
      const stream = requests[Symbol.asyncIterator]();
      const next = () => withTimeout('Waiting for bytes of the upload', idleMs, signal, () => stream.next());
      const first = await next();
      const head = first.done ? undefined : first.value.write;
      if (!head) throw new VirtkeepError('missing_field', { field: 'write' });
      const operationId = uploads.operationOf(head.id);
      const isWhole = await uploads
        .take(head.id, partOf(head, dataOf(next)), signal)
        .catch((error: unknown) => {
          if (operationId === undefined || !hasKey(error, 'interrupted')) throw error;
          // its operation takes no more: how it ends says whether all had come
          return true;
        });
      if (isWhole && operationId !== undefined) await ended(runner, operationId, signal);
      return message(uploads.get(head.id));
    },

    async abort({ id }, { signal }) {
      const operationId = uploads.operationOf(id);
      if (operationId !== undefined) {
        runner.cancel(operationId);
        await ended(runner, operationId, signal).catch(() => {});
        return {};
      }
      // what has come may be out of reach: nobody goes on with it, and it goes later
      await turns
        .run(id, () => uploads.remove(id))
        .catch((error: unknown) => {
          if (hasKey(error, 'upload_not_found', 'upload_busy')) throw error;
        });
      return {};
    },
  };
}

function partOf(
  { offset, checksumAlgorithm, checksum, last }: WriteUpload,
  bytes: AsyncIterator<Uint8Array>,
): Part {
  const part = { offset: Number(offset), last, bytes };
  if (checksumAlgorithm === '') return part;
  if (checksumAlgorithm !== 'sha256' && checksumAlgorithm !== 'sha1')
    throw new VirtkeepError('invalid_field', {
      field: 'checksum_algorithm',
      reason: 'is neither sha256 nor sha1',
    });
  if (checksum.length !== DIGEST_BYTES[checksumAlgorithm])
    throw new VirtkeepError('invalid_field', {
      field: 'checksum',
      reason: `is no ${checksumAlgorithm} by its length`,
    });
  return { ...part, checksum: { algorithm: checksumAlgorithm, digest: checksum } };
}

function requireSha256(value: string): void {
  if (value === '' || /^[0-9a-f]{64}$/.test(value)) return;
  throw new VirtkeepError('invalid_field', {
    field: 'sha256',
    reason: 'is not 64 lower-case hexadecimal digits',
  });
}

/** What comes after the first message; when its caller goes away or sends no more, that is an error and no end. */
async function* dataOf(
  next: () => Promise<IteratorResult<WriteUploadRequest>>,
): AsyncGenerator<Uint8Array, undefined> {
  for (;;) {
    const message = await next();
    if (message.done) return undefined;
    yield message.value.data;
  }
}

/** Waits for the end of its operation; it goes on though the caller has left. @throws VirtkeepError what it failed with; canceled */
async function ended(runner: OperationRunner, id: Operation['id'], signal: AbortSignal): Promise<void> {
  for await (const { operation } of runner.watch(0, id, signal)) {
    if (!operation || operation.state === OperationState.RUNNING) continue;
    if (operation.error) throw fromErrorMessage(operation.error);
    if (operation.state !== OperationState.SUCCEEDED) throw new VirtkeepError('canceled');
    return;
  }
  throw new VirtkeepError('draining');
}

function uploadMessage(uploads: Uploads, record: UploadRecord): Upload {
  const { id, poolId, filename, sizeBytes, sha256, durableBytes, isDone } = record;
  return {
    id,
    poolId,
    filename,
    ...(sizeBytes !== null && { size: BigInt(sizeBytes) }),
    offset: BigInt(durableBytes),
    sha256,
    expiresInMs: BigInt(Math.round(uploads.expiresInMs(record))),
    operationId: uploads.operationOf(id) ?? '',
    done: isDone,
  };
}
