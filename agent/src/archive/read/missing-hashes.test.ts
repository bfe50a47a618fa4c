import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { ArchiveSigner } from '../format/signer.ts';
import { testAuthority } from '../format/signing-kit.ts';
import { lockFile } from '../system/file-lock.ts';
import { appendState, growingManifest, noise, scratch, signal, tool, writeArchive } from '../test-kit.ts';
import { ArchiveAppender } from '../write/append.ts';
import { undoAppend } from '../write/tail.ts';
import { missingHashes, unhashedBytes } from './missing-hashes.ts';
import { openArchive, verifyArchive } from './reader.ts';

let dir: ReturnType<typeof scratch>;
beforeEach(() => {
  dir = scratch();
});
afterEach(() => dir.remove());

async function hashesOf(path: string): Promise<Map<string, string>> {
  const lock = await lockFile(path, 'exclusive');
  return missingHashes(path, lock, { signal, onProgress: () => {} }).finally(() => lock.release());
}

async function membersOf(path: string) {
  const archive = await openArchive(path, signal);
  await archive.close();
  return archive.manifest!.members;
}

describe.each([
  ['tar', false],
  ['tar.zst', true],
])('a %s that was made without hashes', (ending, zstd) => {
  let path: string;
  beforeEach(async () => {
    path = dir.at(`a.${ending}`);
    writeFileSync(dir.at('disk'), noise(5_000_000));
    await writeArchive(path, [{ name: 'd.qcow2', from: dir.at('disk') }], { zstd });
    await appendState(path, [{ name: 'e.snapshot', from: noise(90_000, 2) }], { tailPath: dir.at('t') });
  });

  test('has all of them with an increment that is asked for with them, and sha256sum agrees', async () => {
    const hashes = await hashesOf(path);
    await appendState(path, [{ name: 'f.snapshot', from: noise(9000, 3) }], { hash: true, hashes });
    const members = await membersOf(path);
    expect(
      members.map(({ name, sha256, hashedLater = false }) => [name, sha256?.length, hashedLater]),
    ).toEqual([
      ['d.qcow2', 64, true],
      ['0001_vm.xml', 64, true],
      ['0001_manifest.json', 64, true],
      ['e.snapshot', 64, true],
      ['0002_vm.xml', 64, true],
      // of the increment: read while it was written
      ['0002_manifest.json', 64, false],
      ['f.snapshot', 64, false],
      ['0003_vm.xml', 64, false],
    ]);
    expect(await verifyArchive(path, { signal })).toMatchObject({
      problems: [],
      hashed: true,
      unprovenMembers: 0,
    });
    mkdirSync(dir.at('out'));
    await tool(
      'sh',
      ['-c', zstd ? `zstd -dcq ${path} | tar -xf - -C out` : `tar -xf ${path} -C out`],
      dir.path,
    );
    const checked = await tool('sha256sum', ['-c', `${path}.sha256`], dir.at('out'));
    expect(checked.trim().split('\n')).toHaveLength(members.length + 1);
    await appendState(path, [{ name: 'g.snapshot', from: noise(9000, 4) }], { tailPath: dir.at('u') });
    expect(await verifyArchive(path, { signal })).toMatchObject({ problems: [], hashed: true });
  });

  test('is what it was when that increment is undone', async () => {
    const before = readFileSync(path);
    await appendState(path, [], { hash: true, hashes: await hashesOf(path), tailPath: dir.at('tail') });
    expect(existsSync(`${path}.sha256`)).toBe(true);
    await undoAppend(path, dir.at('tail'));
    expect([readFileSync(path).equals(before), existsSync(`${path}.sha256`)]).toEqual([true, false]);
  });

  test('counts as without hashes while some of its members have none; those that have one are compared', async () => {
    await appendState(path, [{ name: 'f.snapshot', from: noise(9000, 3) }], { hash: true });
    expect(await verifyArchive(path, { signal })).toMatchObject({ problems: [], hashed: false });
    expect(readFileSync(`${path}.sha256`, 'utf8')).not.toContain('d.qcow2');
    const hashes = await hashesOf(path);
    expect([...hashes.keys()]).not.toContain('f.snapshot');
    await appendState(path, [], { hash: true, hashes, tailPath: dir.at('u') });
    expect(await verifyArchive(path, { signal })).toMatchObject({ problems: [], hashed: true });
  });
});

test('what a checksum finds damaged gets no hash', async () => {
  const path = dir.at('a.tar.zst');
  await writeArchive(path, [{ name: 'd.qcow2', from: noise(200_000) }], { zstd: true });
  const bytes = readFileSync(path);
  writeFileSync(path, bytes.fill(bytes[20_000]! ^ 0xff, 20_000, 20_001));
  await expect(hashesOf(path)).rejects.toMatchObject({ msgKey: 'archive_damaged' });
});

test('hashes made later are no proof that nothing was changed before, and the signature is not said to cover the disks', async () => {
  const path = dir.at('a.tar');
  const identity = await (await testAuthority()).node('0b0c9a7e-8d6a-4f57-9c58-6d0d3f6f0011');
  const signer = new ArchiveSigner({ identity: () => identity, isRevoked: () => false });
  await writeArchive(path, [{ name: 'd.qcow2', from: noise(9000) }], { sign: signer.sign });
  const before = await membersOf(path);
  expect(unhashedBytes({ members: before })).toBe(9000);
  const hashes = await hashesOf(path);
  expect([...hashes.keys()]).toEqual(['d.qcow2']);
  const signing = () => ({ sign: signer.sign, sameSigner: true });
  await appendState(path, [], { hash: true, hashes, signer: signing });
  const archive = await openArchive(path, signal);
  await archive.close();
  expect(signer.judge(archive)).toMatchObject({ trust: 'own', coversContent: false });
  const [, xml] = archive.manifest!.members;
  expect(xml).toMatchObject({ name: '0001_vm.xml', sha256: before[1]!.digest });
  expect(xml).not.toHaveProperty('digest');
});

test("an extension of a file that is nobody's yet keeps no old end, and has its hash file all the same", async () => {
  const path = dir.at('.a.tar.partial');
  await writeArchive(path, [{ name: 'd.qcow2', from: noise(9000) }]);
  const hashes = await hashesOf(path);
  const appender = await ArchiveAppender.open({ path, signal, hash: true, hashes });
  await appender.begin(null);
  await appender.addBytes('0002_vm.xml', 'domain_xml', Buffer.from('<domain/>'));
  const manifest = (members: Parameters<typeof growingManifest>[1]) =>
    growingManifest(appender.manifest, members);
  expect(await appender.finish({ stateNumber: 2, manifest })).toMatchObject({ sha256Path: `${path}.sha256` });
  await appender.abort();
  expect(await verifyArchive(path, { signal })).toMatchObject({ problems: [], hashed: true });
});
