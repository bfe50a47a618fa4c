import { withTimeout } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type {
  Image,
  ImageServiceImplementation,
  NewImage,
  UploadImageRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/image';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { fromErrorMessage } from '@virtkeep/shared/grpc-status';
import { isoIdOf } from '@virtkeep/shared/iso';
import { resultOf } from '@virtkeep/shared/operation-result';
import { findIso, type IsoImage, isoChunks, listIsoImages, newIsoPlace } from '../iso/index.ts';
import type { OperationRunner } from '../operations/runner.ts';
import { PathGate, readablePool } from '../pools/index.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { uploadIso } from '../workflows/files/upload-iso.ts';
import { requireUuid } from './fields.ts';
import { fileLock, poolEntities } from './start-operation.ts';

/** Longer than the controller can be set to wait for who uploads through it (an hour): that is what counts there. */
const IDLE_MS = 3_900_000;

/** `ImageService`; what its methods promise stands in the proto. */
export function imageService(
  runner: OperationRunner,
  dependencies: Pick<WorkflowDependencies, 'pools' | 'nodeName'>,
  /** How long a caller of an upload may send nothing. */
  idleMs = IDLE_MS,
): ImageServiceImplementation {
  const { pools, nodeName } = dependencies;
  const gate = new PathGate();
  return {
    async list({ poolId }, { signal }) {
      const pool = readablePool(await pools(signal), poolId, nodeName);
      const images = await gate.run(poolId, () => listIsoImages(pool.path));
      if (images === undefined) throw hung(pool.path);
      return { images: images.map(image => imageMessage(poolId, image)) };
    },

    async *download({ poolId, filename, offset, length }, { signal }) {
      const { path } = await findIso(await pools(signal), { poolId, filename }, nodeName);
      yield* isoChunks(path, { offset: Number(offset), length: Number(length) }, signal);
    },

    async upload(requests, { signal }) {
      const stream = requests[Symbol.asyncIterator]();
      const next = () => withTimeout('Waiting for bytes of the image', idleMs, signal, () => stream.next());
      const first = await next();
      const request = first.done ? undefined : first.value.image;
      if (!request) throw new VirtkeepError('missing_field', { field: 'image' });
      requireUuid('operation_id', request.operationId);
      const place = await newIsoPlace(await pools(signal), request, nodeName);
      const operation = runner.start({
        id: request.operationId,
        kind: 'upload_iso',
        request,
        entities: poolEntities(request.poolId),
        locks: [fileLock(place.path, 'exclusive')],
        cancellable: true,
        heavy: false,
        workflow: uploadIso({ place, sizeBytes: Number(request.size), bytes: dataOf(next) }),
      });
      return ended(runner, operation, request);
    },
  };
}

const hung = (path: string) =>
  new VirtkeepError('io_failed', { operation: 'reading', path, reason: 'its file system does not answer' });

/** What comes after the first message; when its caller goes away or sends no more, that is an error and no end. */
async function* dataOf(
  next: () => Promise<IteratorResult<UploadImageRequest>>,
): AsyncGenerator<Uint8Array, undefined> {
  for (;;) {
    const message = await next();
    if (message.done) return undefined;
    yield message.value.data;
  }
}

async function ended(runner: OperationRunner, { id }: Operation, { poolId }: NewImage): Promise<Image> {
  for await (const { operation } of runner.watch(0, id, new AbortController().signal)) {
    if (!operation || operation.state === OperationState.RUNNING) continue;
    if (operation.error) throw fromErrorMessage(operation.error);
    if (operation.state !== OperationState.SUCCEEDED) throw new VirtkeepError('canceled');
    const { filename, path, size } = resultOf(operation, 'uploadIso');
    const modified = operation.finished ?? new Date();
    return imageMessage(poolId, { filename, path, sizeBytes: Number(size), modified });
  }
  throw new VirtkeepError('draining');
}

function imageMessage(poolId: string, { filename, path, sizeBytes, modified }: IsoImage): Image {
  return { id: isoIdOf(poolId, filename), poolId, filename, path, size: BigInt(sizeBytes), modified };
}
