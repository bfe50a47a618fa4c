/** Archives that other programs compressed: what their checksums do not prove is not called proven. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { afterAll, expect, test } from '@jest/globals';
import zstd from 'zstd-napi/binding.js';
import { FrameList } from './format/seek-table.ts';
import { verifyArchive } from './index.ts';
import { noise, scratch, signal, tool } from './test-kit.ts';

const dir = scratch();
afterAll(() => dir.remove());

/** A tar of two members, cut into frames that know nothing of members. */
async function plainTar(name: string): Promise<Buffer> {
  const home = dir.at(name);
  mkdirSync(home);
  for (const [index, sizeBytes] of [300_000, 500_000].entries())
    writeFileSync(`${home}/m${index}`, noise(sizeBytes, index + 1));
  await tool('tar', ['-C', home, '-cf', `${home}.tar`, 'm0', 'm1']);
  return readFileSync(`${home}.tar`);
}

function compressed(bytes: Buffer, checksum: boolean): Buffer {
  const context = new zstd.CCtx();
  context.setParameter(zstd.CParameter.checksumFlag, Number(checksum));
  const into = Buffer.alloc(zstd.compressBound(bytes.length));
  return into.subarray(0, context.compress2(into, bytes));
}

/** The seekable format as others write it: frames of 200000 bytes; their checksums in the frames, or nowhere. */
async function seekable(name: string, { checksum }: { checksum: boolean }): Promise<string> {
  const tar = await plainTar(name);
  const list = new FrameList();
  const frames: Buffer[] = [];
  for (let at = 0; at < tar.length; at += 200_000) {
    const raw = tar.subarray(at, at + 200_000);
    const frame = compressed(raw, checksum);
    list.add(frame.length, raw.length, checksum ? frame.readUInt32LE(frame.length - 4) : 7);
    frames.push(frame);
  }
  const path = dir.at(`${name}.tar.zst`);
  writeFileSync(path, Buffer.concat([...frames, list.encode()]));
  return path;
}

function flip(path: string, at: number): void {
  const bytes = readFileSync(path);
  bytes[at]! ^= 0x40;
  writeFileSync(path, bytes);
}

test('frames of another cut are read and proved by their checksums', async () => {
  const path = await seekable('cut', { checksum: true });
  expect(await verifyArchive(path, { signal })).toMatchObject({
    problems: [],
    provenMembers: 2,
    unprovenMembers: 0,
  });
  flip(path, 350_000);
  const { problems, provenMembers } = await verifyArchive(path, { signal });
  expect(problems).toContainEqual(expect.objectContaining({ member: 'm1', problem: 'damaged' }));
  expect(provenMembers).toBe(1);
});

test('frames without a checksum prove nothing, whatever the seek table says', async () => {
  const path = await seekable('bare', { checksum: false });
  expect(await verifyArchive(path, { signal })).toMatchObject({
    problems: [],
    provenMembers: 0,
    unprovenMembers: 2,
  });
});

test.each([
  ['--check', { provenMembers: 2, unprovenMembers: 0 }],
  ['--no-check', { provenMembers: 0, unprovenMembers: 2 }],
])('a stream of zstd %s', async (option, wanted) => {
  const name = `stream${option}`;
  await plainTar(name);
  await tool('zstd', ['-q', option, dir.at(`${name}.tar`), '-o', dir.at(`${name}.tar.zst`)]);
  const result = await verifyArchive(dir.at(`${name}.tar.zst`), { signal });
  expect(result).toMatchObject({ problems: [], ...wanted });
});
