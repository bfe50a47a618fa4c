import { linkSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import type { ArchiveTrust, Manifest } from '../../archive/index.ts';
import type { PoolRecord } from '../../pools/index.ts';
import { samplePool } from '../../pools/sample-pool.ts';
import { formerImages } from './former-image.ts';

const root = mkdtempSync(join(tmpdir(), 'virtkeep-images-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const at = (path: string) => join(root, path);
const iso = Buffer.alloc(40_000);
iso.write('CD001', 32_769);
for (const directory of ['pool/backups', 'pool/sub', 'away']) mkdirSync(at(directory), { recursive: true });
for (const path of ['pool/a.iso', 'pool/hard.iso', 'away/b.iso', 'pool/backups/c.iso'])
  writeFileSync(at(path), iso);
const SECRET = 'of the node'.repeat(6000);
for (const path of ['secret', 'pool/disk.img']) writeFileSync(at(path), SECRET);
symlinkSync(at('secret'), at('pool/link.iso'));
symlinkSync(at('pool/a.iso'), at('pool/inner.iso'));
symlinkSync(root, at('pool/up'));
symlinkSync(at('pool'), at('moved'));
symlinkSync(at('secret'), at('link'));
linkSync(at('pool/hard.iso'), at('pool/hard2.iso'));

const pools = [
  samplePool('pool', { path: at('pool') }),
  samplePool('moved', { path: at('moved') }),
  samplePool('away', { path: at('away'), outside: true }),
];

async function shown(
  path: string,
  trust: ArchiveTrust,
  { records = pools, sizeBytes = SECRET.length }: { records?: PoolRecord[]; sizeBytes?: number } = {},
): Promise<string | undefined> {
  const manifest = { isos: [{ formerPath: path, sizeBytes }] } as unknown as Manifest;
  return (await formerImages(manifest, records, trust)).get(path);
}

describe('an image that is where it was', () => {
  test.each<[string, string, ArchiveTrust]>([
    ['in a pool', 'pool/a.iso', 'own'],
    ['in a pool, of another archive', 'pool/a.iso', 'foreign'],
    ['in a directory outside of the pools', 'away/b.iso', 'own'],
    ['no CD-ROM', 'pool/disk.img', 'own'],
    ['in no pool', 'secret', 'own'],
  ])('is shown: %s', async (_what, path, trust) => {
    expect(await shown(at(path), trust)).toBe(at(path));
  });

  test('is shown without the links that lead to it', async () => {
    expect(await shown(at('pool/inner.iso'), 'own')).toBe(at('pool/a.iso'));
    expect(await shown(at('moved/a.iso'), 'own')).toBe(at('pool/a.iso'));
  });

  test.each<[string, string, ArchiveTrust]>([
    ['a path with dots', `${at('pool')}/../secret`, 'own'],
    ['a link out of the pool', at('pool/link.iso'), 'own'],
    ['behind a directory that is a link', at('pool/up/secret'), 'own'],
    ["in no pool, another archive's", at('secret'), 'fleet'],
    ['in no pool, a link', at('link'), 'own'],
    ['in no pool, not there', at('none'), 'own'],
    ['in no pool, a directory', root, 'own'],
    ['a backup', at('pool/backups/c.iso'), 'own'],
    ['a directory', at('pool/sub'), 'own'],
    ['not there', at('pool/none.iso'), 'own'],
    ['a relative path', 'pool/a.iso', 'own'],
    ['a NUL', `${at('pool/a.iso')}\0`, 'own'],
    ["another archive's, outside of the pools", at('away/b.iso'), 'fleet'],
    ["another archive's, the disk of another VM", at('pool/disk.img'), 'foreign'],
    ["another archive's, a file of two names", at('pool/hard.iso'), 'foreign'],
  ])('is not shown: %s', async (_what, path, trust) => {
    expect(await shown(path, trust)).toBeUndefined();
  });

  test('is not shown of a pool that is away', async () => {
    const records = [samplePool('pool', { path: at('pool'), active: false })];
    expect(await shown(at('pool/a.iso'), 'own', { records })).toBeUndefined();
  });

  test('is not shown in no pool when it is another one by now', async () => {
    expect(await shown(at('secret'), 'own', { sizeBytes: SECRET.length + 1 })).toBeUndefined();
  });
});
