// Uploads to a real agent that is killed, cancelled and finds its disk full at each step: what was told to have come stays, and the file is
// the same in the end; of one that is over nothing is left. Each upload is held at another step, and one kill -9 strikes them all.
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { WriteUploadRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/upload';
import { newId } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import { UPLOAD_STEPS } from '../../../agent/src/workflows/files/upload/index.ts';
import { AgentAlone } from '../../e2e/agent-alone.ts';
import { definePool, type Pool } from '../../lab/node.ts';
import { waitFor } from '../../lab/run.ts';
import { SmallDisk } from '../../lab/small-disk.ts';

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
let small: SmallDisk;
let tight: Pool;
const held = new Map<string, Held>();
/** Ended by who sent them after the kill, and sent in one go. */
const over = new Map<string, { later: Held; atOnce: Held }>();
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

async function begin(filename: string, request: object = {}): Promise<string> {
  const operationId = newId();
  const size = BigInt(BYTES.length);
  const upload = { operationId, poolId: poolId(), filename, size, sha256: SHA256, owner: 'somebody' };
  await alone.uploads.create({ ...upload, ...request });
  return operationId;
}

/** Sends until the operation stands at the step. */
async function holdAt(point: string, directory = 'kept', request: object = {}): Promise<Held> {
  const file = alone.pauseFile(point);
  await alone.arm(`upload_file.${point}=pause:${file}`);
  const name = `${directory}-${point.replace('.', '-')}`;
  const id = await begin(`${name}/shop.vmdk`, request);
  const { offset } = await alone.uploads.write(part(id, 0, 2 * MiB));
  // of the last bytes nobody hears any more
  if (point !== 'receive.mid')
    void alone.uploads.write(part(id, Number(offset), BYTES.length)).catch(() => {});
  await waitFor(`${point} to be reached`, () => existsSync(`${file}.reached`), 60_000, 20);
  return { id, name, told: Number(offset) };
}

beforeAll(async () => {
  small = await SmallDisk.mount(16);
  alone = await AgentAlone.start();
  tight = { name: 'small', uuid: randomUUID(), path: small.path };
  await definePool(alone.world.node, tight);
  await alone.restart();
  mkdirSync(directory(), { recursive: true });
  for (const point of POINTS) {
    held.set(point, await holdAt(point));
    const atOnce = await holdAt(point, 'at-once', { oneWrite: true });
    over.set(point, { later: await holdAt(point, 'later'), atOnce });
  }
  await alone.arm('');
  [waiting, ended] = [await begin('waiting/shop.vmdk'), await begin('ended/shop.vmdk')];
  for (const id of [waiting, ended]) await alone.uploads.write(part(id, 0, MiB));
  await alone.agent.daemon.kill();
  const beganMs = performance.now();
  await alone.up();
  awayMs = performance.now() - beganMs;
});
afterAll(async () => {
  await alone?.stop();
  await small?.unmount();
});

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

/** What has its name is whole, and stays; else there is nothing. */
function isLeft(point: string, name: string): void {
  const at = join(directory(), name);
  if (point === 'publish.after') {
    expect(readdirSync(at)).toEqual(['shop.vmdk']);
    expect(readFileSync(join(at, 'shop.vmdk')).equals(BYTES)).toBe(true);
  } else expect(existsSync(at)).toBe(false);
}

describe('of one that is over nothing is left without its name', () => {
  test.each(POINTS)('killed at %s, and then ended by who sent it', async point => {
    const { id, name } = over.get(point)!.later;
    await alone.uploads.abort({ id });
    isLeft(point, name);
    await expect(alone.uploads.get({ id })).rejects.toThrow(/upload/i);
  });

  test.each(POINTS)('killed at %s, when all of it comes in one go', async point => {
    const { id, name } = over.get(point)!.atOnce;
    const isGone = () =>
      alone.uploads.get({ id }).then(
        () => false,
        () => true,
      );
    await waitFor('its removal', isGone, 60_000);
    isLeft(point, name);
  });

  test.each(POINTS)('cancelled at %s', async point => {
    const { id, name } = await holdAt(point, 'cancelled');
    await alone.operations.cancel({ id });
    expect((await alone.ended(id)).state).toBe(OperationState.CANCELED);
    await alone.arm('');
    expect(existsSync(join(directory(), name))).toBe(false);
    await expect(alone.uploads.get({ id })).rejects.toThrow(/upload/i);
  });
});

describe('a disk that runs full', () => {
  const files = () => readdirSync(join(small.path, 'backups'), { recursive: true });

  test('while bytes come: they stay, and it goes on when there is room', async () => {
    const id = await begin('shop.vmdk', { poolId: tight.uuid });
    small.fill(3);
    await expect(alone.uploads.write(part(id, 0, BYTES.length))).rejects.toThrow(/full|space/i);
    const { offset } = await alone.uploads.get({ id });
    expect(Number(offset)).toBeGreaterThan(0);
    small.free();
    await goOn(id);
    expect(files()).toEqual(['shop.vmdk']);
    expect(readFileSync(join(small.path, 'backups', 'shop.vmdk')).equals(BYTES)).toBe(true);
    rmSync(join(small.path, 'backups', 'shop.vmdk'));
  });

  test('while bytes come in one go: nothing is left', async () => {
    const id = await begin('shop/shop.vmdk', { poolId: tight.uuid, oneWrite: true });
    small.fill(3);
    await expect(alone.uploads.write(part(id, 0, BYTES.length))).rejects.toThrow(/full|space/i);
    expect((await alone.ended(id)).error).toMatchObject({ msgKey: 'disk_full' });
    small.free();
    expect(files()).toEqual([]);
  });

  test.each(['hash.before', 'publish.before'])('at %s: it needs no more', async point => {
    const { id, name } = await holdAt(point, 'full', { poolId: tight.uuid });
    small.fill(0);
    writeFileSync(join(alone.world.dir, `pause-${point}`), '');
    expect((await alone.ended(id)).state).toBe(OperationState.SUCCEEDED);
    await alone.arm('');
    small.free();
    const at = join(small.path, 'backups', name);
    expect(readFileSync(join(at, 'shop.vmdk')).equals(BYTES)).toBe(true);
    rmSync(at, { recursive: true });
  });
});
