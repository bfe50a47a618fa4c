// Uploads to a real agent that is killed at each step: what was told to have come stays, and the file is the same in the end. Each upload
// is held at another step, and one kill -9 strikes them all.
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { WriteUploadRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/upload';
import { newId } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import { UPLOAD_STEPS } from '../../../agent/src/workflows/files/upload/index.ts';
import { AgentAlone } from '../../e2e/agent-alone.ts';
import { waitFor } from '../../lab/run.ts';

const BYTES = randomBytes(5 * MiB + 3);
const SHA256 = createHash('sha256').update(BYTES).digest('hex');
const POINTS = ['receive.mid', ...UPLOAD_STEPS.flatMap(step => [`${step}.before`, `${step}.after`])];
const DAY_MS = 86_400_000;

interface Held {
  id: string;
  name: string;
  /** Bytes that it was told have come. */
  told: number;
}

let alone: AgentAlone;
const held = new Map<string, Held>();
/** Had a part and no operation at a step. */
let waiting: string;
let ended: string;
/** How long the agent was not there. */
let awayMs: number;

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
  await alone.uploads.create(upload);
  return operationId;
}

/** Sends until the operation stands at the step. */
async function holdAt(point: string): Promise<Held> {
  const file = alone.pauseFile(point);
  await alone.arm(`upload_file.${point}=pause:${file}`);
  const name = point.replace('.', '-');
  const id = await begin(`${name}/shop.vmdk`);
  const { offset } = await alone.uploads.write(part(id, 0, 2 * MiB));
  // of the last bytes nobody hears any more
  if (point !== 'receive.mid')
    void alone.uploads.write(part(id, Number(offset), BYTES.length)).catch(() => {});
  await waitFor(`${point} to be reached`, () => existsSync(`${file}.reached`), 60_000, 20);
  return { id, name, told: Number(offset) };
}

beforeAll(async () => {
  alone = await AgentAlone.start();
  mkdirSync(directory(), { recursive: true });
  for (const point of POINTS) held.set(point, await holdAt(point));
  await alone.arm('');
  [waiting, ended] = [await begin('waiting/shop.vmdk'), await begin('ended/shop.vmdk')];
  for (const id of [waiting, ended]) await alone.uploads.write(part(id, 0, MiB));
  await alone.agent.daemon.kill();
  const beganMs = performance.now();
  await alone.up();
  awayMs = performance.now() - beganMs;
});
afterAll(() => alone.stop());

/** Goes on until it is done, as a client does that hears nothing but the offset. */
async function goOn(id: string): Promise<void> {
  const upload = await alone.uploads.get({ id });
  if (upload.done) return;
  if (upload.operationId === '') await alone.uploads.resume({ operationId: newId(), id });
  const written = await alone.uploads.write(part(id, Number(upload.offset), BYTES.length));
  expect(written).toMatchObject({ done: true, sha256: SHA256 });
}

test('what remains until it is given up has gone on meanwhile', async () => {
  const { expiresInMs, offset } = await alone.uploads.get({ id: waiting });
  expect(Number(offset)).toBe(MiB);
  expect(Number(expiresInMs)).toBeLessThanOrEqual(DAY_MS - awayMs);
  expect(Number(expiresInMs)).toBeGreaterThan(DAY_MS / 2);
});

test.each(POINTS)('killed at %s', async point => {
  const { id, name, told } = held.get(point)!;
  expect(Number((await alone.uploads.get({ id })).offset)).toBeGreaterThanOrEqual(told);
  await goOn(id);
  expect(readdirSync(join(directory(), name))).toEqual(['shop.vmdk']);
  expect(readFileSync(join(directory(), name, 'shop.vmdk')).equals(BYTES)).toBe(true);
});

test('killed and then ended: nothing is left', async () => {
  await alone.uploads.abort({ id: ended });
  expect(existsSync(join(directory(), 'ended'))).toBe(false);
});
