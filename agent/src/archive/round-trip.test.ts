import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { openArchive, verifyArchive } from './index.ts';
import { noise, type Piece, scratch, signal, tool, writeArchive, XML } from './test-kit.ts';

const SIZES = [0, 1, 511, 512, 513, 4095, 4096, 4097, 4 * MiB - 1, 4 * MiB, 4 * MiB + 1, 9 * MiB + 77];

const dir = scratch();
const pieces: Piece[] = [];

beforeAll(async () => {
  for (const size of SIZES) {
    writeFileSync(dir.at(`s${size}`), noise(size));
    pieces.push({ name: `s${size}.qcow2`, from: dir.at(`s${size}`) });
  }
  await writeSparse(dir.at('sparse'));
  pieces.push({ name: 'разреженный.iso', kind: 'iso', from: dir.at('sparse') });
  pieces.push({ name: 'small.memory', kind: 'memory', from: noise(100_000) });
});
afterAll(() => dir.remove());

/** 40 MiB with data at odd places, written zeros, and a hole at the end. */
async function writeSparse(path: string): Promise<void> {
  const handle = await open(path, 'w');
  const parts: [number, Buffer][] = [
    [0, noise(5000)],
    [6 * MiB + 123, noise(70_000, 2)],
    [13 * MiB, Buffer.alloc(5 * MiB)],
    [20 * MiB, noise(9 * MiB, 3)],
  ];
  for (const [at, bytes] of parts) await handle.write(bytes, 0, bytes.length, at);
  await handle.truncate(40 * MiB + 5);
  await handle.close();
}

async function expectAllBack(path: string): Promise<void> {
  const archive = await openArchive(path, signal);
  try {
    expect(archive.members.map(({ name }) => name)).toEqual([
      ...pieces.map(({ name }) => name),
      '0001_vm.xml',
      '0001_manifest.json',
    ]);
    for (const { name, from } of pieces) {
      const out = dir.at('extracted');
      await archive.extractMember(name, out, { signal, checkHash: true });
      const wanted = typeof from === 'string' ? readFileSync(from) : from;
      expect({ name, same: readFileSync(out).equals(wanted) }).toEqual({ name, same: true });
      if (name.endsWith('.iso')) expect(statSync(out).blocks * 512).toBeLessThan(11 * MiB);
      rmSync(out);
    }
    expect((await archive.readMember('0001_vm.xml', signal)).toString()).toBe(XML);
    const verified = await archive.verify({ signal });
    expect(verified.problems).toEqual([]);
    expect(verified.provenMembers).toBe(archive.members.length);
  } finally {
    await archive.close();
  }
}

describe.each([
  ['tar', []],
  ['tar.zst', ['--zstd']],
])('%s', (format, unpack) => {
  const path = dir.at(`all.${format}`);
  const unpacked = dir.at(`unpacked-${format}`);

  beforeAll(async () => {
    await writeArchive(path, pieces, { zstd: format === 'tar.zst', hash: true });
    mkdirSync(unpacked);
  });

  test('every size and hole comes back, byte for byte', () => expectAllBack(path));

  test('big data starts at multiples of 4096', async () => {
    const archive = await openArchive(path, signal);
    await archive.close();
    const fromFiles = pieces.filter(({ from }) => typeof from === 'string').map(({ name }) => name);
    for (const { name, dataOffset } of archive.members)
      if (fromFiles.includes(name)) expect(dataOffset % 4096).toBe(0);
  });

  test('GNU tar lists and unpacks it, sha256sum agrees', async () => {
    const listed = await tool('tar', [...unpack, '--quoting-style=literal', '-tf', path]);
    expect(listed.trim().split('\n')).toEqual([
      ...pieces.map(({ name }) => name),
      '0001_vm.xml',
      '0001_manifest.json',
    ]);
    await tool('tar', ['-C', unpacked, ...unpack, '-xf', path]);
    await tool('sha256sum', ['--strict', '--quiet', '-c', `${path}.sha256`], unpacked);
    for (const { name, from } of pieces)
      if (typeof from === 'string') await tool('cmp', [from, `${unpacked}/${name}`]);
  });

  test('python reads it', async () => {
    const source = format === 'tar' ? path : dir.at('for-python.tar');
    if (format === 'tar.zst') await tool('zstd', ['-q', '-f', '-d', path, '-o', source]);
    const script =
      'import sys,tarfile,hashlib\nfor m in tarfile.open(sys.argv[1]):\n print(hashlib.sha256(tarfile.open(sys.argv[1]).extractfile(m).read()).hexdigest()+"  "+m.name)';
    const printed = await tool('python3', ['-c', script, source]);
    expect(printed).toBe(readFileSync(`${path}.sha256`, 'utf8'));
  });

  test('bytes after the data are zeros up to the next header, and the end is an end-of-archive', async () => {
    if (format !== 'tar') return;
    const bytes = readFileSync(path);
    expect(bytes.subarray(-1024).every(byte => byte === 0)).toBe(true);
    expect(bytes.length % 512).toBe(0);
  });
});

test('zstd -t accepts the compressed one', async () => {
  await tool('zstd', ['-q', '-t', dir.at('all.tar.zst')]);
  expect((await verifyArchive(dir.at('all.tar.zst'), { signal })).problems).toEqual([]);
});

test.each([false, true])('a sparse member above 8 GiB (zstd: %p)', async zstd => {
  const big = dir.at('big');
  const handle = await open(big, 'w');
  await handle.truncate(9 * 1024 * MiB);
  await handle.write(noise(10_000), 0, 10_000, 8.5 * 1024 * MiB);
  await handle.close();
  const path = dir.at(zstd ? 'big.tar.zst' : 'big.tar');
  await writeArchive(path, [{ name: 'big.qcow2', from: big }], { zstd });
  expect(statSync(path).blocks * 512).toBeLessThan(2 * MiB);
  const archive = await openArchive(path, signal);
  await archive.extractMember('big.qcow2', dir.at('big.out'), { signal });
  await archive.close();
  expect(statSync(dir.at('big.out')).size).toBe(9 * 1024 * MiB);
  expect(statSync(dir.at('big.out')).blocks * 512).toBeLessThan(5 * MiB);
  await expectTail(dir.at('big.out'));
  if (!zstd) expect(await tool('tar', ['-tvf', path])).toContain(` ${9 * 1024 * MiB} `);
  for (const name of ['big', 'big.out', zstd ? 'big.tar.zst' : 'big.tar']) rmSync(dir.at(name));
});

async function expectTail(path: string): Promise<void> {
  const handle = await open(path, 'r');
  const bytes = Buffer.alloc(10_000);
  await handle.read(bytes, 0, bytes.length, 8.5 * 1024 * MiB);
  await handle.close();
  expect(bytes.equals(noise(10_000))).toBe(true);
}
