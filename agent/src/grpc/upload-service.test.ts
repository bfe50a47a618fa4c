/** Who sends to an upload whose operation ends in that moment. */
import { expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { WriteUploadRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/upload';
import { toErrorMessage } from '@virtkeep/shared/grpc-status';
import { uploadService } from './upload-service.ts';

const { signal } = new AbortController();
const RECORD = {
  id: 'u',
  poolId: 'p',
  filename: 'shop.vmdk',
  sizeBytes: 3,
  sha256: '',
  durableBytes: 3,
  isDone: true,
};

async function* nothing(): AsyncGenerator<WriteUploadRequest> {
  const head = { id: 'u', offset: 3n, checksumAlgorithm: '', checksum: Buffer.alloc(0), last: false };
  yield { write: head, data: Buffer.alloc(0) };
}

/** Sends to one that takes no more, since its operation ends so. */
function write(end: object): Promise<{ done?: boolean }> {
  const runner = {
    async *watch() {
      yield { operation: { state: OperationState.RUNNING } };
      yield { operation: end };
    },
  };
  const uploads = {
    operationOf: () => 'o',
    take: () => Promise.reject(new VirtkeepError('interrupted')),
    get: () => RECORD,
    expiresInMs: () => 0,
  };
  return uploadService(runner as never, uploads as never).write(nothing(), { signal } as never);
}

test('all had come: it is done', async () => {
  await expect(write({ state: OperationState.SUCCEEDED })).resolves.toMatchObject({ done: true, offset: 3n });
});

test.each(['upload_hash', 'interrupted'] as const)('it failed with %s, which is said', async key => {
  const error = toErrorMessage(new VirtkeepError(key, { found: 'a', expected: 'b' } as never));
  await expect(write({ state: OperationState.FAILED, error })).rejects.toMatchObject({ msgKey: key });
});
