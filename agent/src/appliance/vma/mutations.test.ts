import { writeFile } from 'node:fs/promises';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { afterAll, expect, test } from '@jest/globals';
import { isVirtkeepError } from '@virtkeep/shared/errors';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { openVma } from '../index.ts';
import { scratch } from '../test-kit.ts';
import { someContent, vma } from './test-kit.ts';

// Whatever is done to the bytes: all that they hold, or an error that says why not, within a time.
const dir = scratch();
afterAll(dir.remove);

const SEED = Number(process.env.VIRTKEEP_VMA_SEED ?? Date.now() % 1_000_000);
const TIMES = Number(process.env.VIRTKEEP_VMA_TIMES ?? 500);
/** Of processor time; a disk that is busy counts for nothing. */
const MAX_MS = 5_000;
const PATIENCE_MS = 60_000;

test(`${TIMES} random changes end with an answer or an error of the table (VIRTKEEP_VMA_SEED=${SEED})`, async () => {
  const small = { 'drive-scsi0': someContent(400_384), 'drive-ide1': someContent(65_536, 4) };
  const ends = { taken: 0, refused: 0 };
  for (let time = 0; time < TIMES; time++) {
    const random = seededRandom(SEED + time);
    // half of them with good checksums, so that what stands behind these is reached
    const isSealed = random(2) === 0;
    const damage = (bytes: Buffer, most: number) => {
      for (let count = 1 + random(3); count > 0; count--) changed(bytes, random(most), random);
    };
    const made = vma({
      configs: { 'qemu-server.conf': 'name: web\n' },
      devices: small,
      header: bytes => isSealed && random(2) === 0 && damage(bytes, bytes.length),
      extent: bytes => isSealed && random(2) === 0 && damage(bytes, bytes.length),
    });
    if (!isSealed) damage(made, random(2) === 0 ? made.length : 13_400);
    const cut = random(10) === 0 ? made.subarray(0, random(made.length)) : made;
    const pack = [(bytes: Buffer) => bytes, gzipSync, zstdCompressSync][random(3)]!;
    const packed = Buffer.from(pack(cut));
    if (packed.length > 0 && random(4) === 0) changed(packed, random(packed.length), random);
    const where = `change ${time}: VIRTKEEP_VMA_SEED=${SEED + time} VIRTKEEP_VMA_TIMES=1`;
    const began = process.cpuUsage();
    try {
      await walked(packed);
      ends.taken++;
    } catch (error) {
      if (!isVirtkeepError(error) || error.msgKey !== 'appliance_invalid')
        throw new Error(where, { cause: error });
      ends.refused++;
    }
    const { user, system } = process.cpuUsage(began);
    if ((user + system) / 1000 > MAX_MS) throw new Error(`too slow: ${where}`);
  }
  expect(Math.min(ends.taken, ends.refused)).toBeGreaterThan(TIMES / 50 - 1);
}, 1_800_000);

function changed(bytes: Buffer, at: number, random: (below: number) => number): void {
  const length = Math.min([1, 2, 4, 8][random(4)]!, bytes.length - at);
  const how = random(4);
  if (how === 0) bytes[at]! ^= 1 << random(8);
  else if (how === 1) bytes.fill(0, at, at + length);
  else if (how === 2) bytes.fill(0xff, at, at + length);
  else for (let index = 0; index < length; index++) bytes[at + index] = random(256);
}

/** Reads all of it; what a header claims is not taken as memory. */
async function walked(bytes: Buffer): Promise<void> {
  const path = dir.at('mutated');
  await writeFile(path, bytes);
  const archive = await openVma(path, AbortSignal.timeout(PATIENCE_MS));
  try {
    for await (const { device, offset, bytes: part } of archive.data())
      expect(offset + part.length).toBeLessThanOrEqual(device.sizeBytes);
  } finally {
    await archive.close();
  }
}
