// Uploads to a real agent that is killed at each step: what was told to have come stays, and the file is the same in the end.
import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { WriteUploadRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/upload';
import { newId } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import { UPLOAD_STEPS } from '../../../agent/src/workflows/files/upload/index.ts';
import { AgentAlone, lostAnswer } from '../../e2e/agent-alone.ts';

const BYTES = randomBytes(5 * MiB + 3);
const SHA256 = createHash('sha256').update(BYTES).digest('hex');
const POINTS = ['receive.mid', ...UPLOAD_STEPS.flatMap(step => [`${step}.before`, `${step}.after`])];

let alone: AgentAlone;
beforeAll(async () => {
  alone = await AgentAlone.start();
  mkdirSync(directory(), { recursive: true });
});
afterAll(() => alone.stop());

const directory = () => join(alone.world.node.pool(1).path, 'backups');
const poolId = () => alone.world.node.pool(1).uuid;

async function* part(id: string, offset: number, end: number): AsyncGenerator<Partial<WriteUploadRequest>> {
  const head = { checksumAlgorithm: '', checksum: Buffer.alloc(0), last: false };
  yield { write: { ...head, id, offset: BigInt(offset) } };
  for (let at = offset; at < end; at += MiB) yield { data: BYTES.subarray(at, Math.min(end, at + MiB)) };
}

async function begin(filename: string): Promise<string> {
  const operationId = newId();
  const size = BigInt(BYTES.length);
  const upload = { operationId, poolId: poolId(), filename, size, sha256: SHA256, owner: 'somebody' };
  await alone.uploads.create(upload).catch(lostAnswer);
  return operationId;
}

/** Goes on until it is done, as a client does that hears nothing but the offset. */
async function goOn(id: string): Promise<void> {
  const upload = await alone.uploads.get({ id });
  if (upload.done) return;
  if (upload.operationId === '') await alone.uploads.resume({ operationId: newId(), id });
  const written = await alone.uploads.write(part(id, Number(upload.offset), BYTES.length));
  expect(written).toMatchObject({ done: true, sha256: SHA256 });
}

test.each(POINTS)('killed at %s', async point => {
  await alone.arm(`upload_file.${point}=kill`);
  const id = await begin('dir/shop.vmdk');
  let told = 0;
  await alone.uploads
    .write(part(id, 0, 2 * MiB))
    .then(({ offset }) => (told = Number(offset)))
    .catch(() => {});
  if (told > 0) await alone.uploads.write(part(id, told, BYTES.length)).catch(() => {});
  await alone.died();
  await alone.up();
  expect(Number((await alone.uploads.get({ id })).offset)).toBeGreaterThanOrEqual(told);
  await goOn(id);
  expect(readdirSync(join(directory(), 'dir'))).toEqual(['shop.vmdk']);
  expect(readFileSync(join(directory(), 'dir/shop.vmdk')).equals(BYTES)).toBe(true);
  rmSync(join(directory(), 'dir'), { recursive: true });
});

test('killed and then ended: nothing is left', async () => {
  await alone.arm('');
  const id = await begin('dir/shop.vmdk');
  await alone.uploads.write(part(id, 0, MiB));
  await alone.restart();
  await alone.uploads.abort({ id });
  expect(readdirSync(directory())).toEqual([]);
});
