import { constants, zstdCompressSync } from 'node:zlib';
import { expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { unzstded } from './unpacked.ts';

async function* piecesOf(...pieces: Buffer[]) {
  for (const piece of pieces) yield piece;
}

test('others have their turn while zstd brings much out of little', async () => {
  const content = Buffer.alloc(96 * MiB, 'vm');
  const packed = zstdCompressSync(content, { params: { [constants.ZSTD_c_checksumFlag]: 1 } });
  expect(packed.length).toBeLessThan(MiB);
  let turns = 0;
  let isOver = false;
  const others = () => {
    turns += 1;
    if (!isOver) setImmediate(others);
  };
  setImmediate(others);
  let bytes = 0;
  for await (const piece of unzstded(piecesOf(packed, packed))) bytes += piece.length;
  isOver = true;
  expect(bytes).toBe(2 * content.length);
  expect(turns).toBeGreaterThanOrEqual(bytes / (4 * MiB) - 1);
});
