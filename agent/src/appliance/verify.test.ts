import { createHash, createPrivateKey, createSign, type KeyObject } from 'node:crypto';
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import {
  type AppliancePackage,
  checkCertificate,
  chunksOf,
  mostOfDisk,
  openAppliance,
  type Source,
  unpackDisk,
  verifyDescriptor,
  verifyMembers,
} from './index.ts';
import { parseManifest } from './manifest.ts';
import { invalid, scratch, signal, tar, tarMember, tool } from './test-kit.ts';

const dir = scratch();
afterAll(dir.remove);
const opened: AppliancePackage[] = [];
afterAll(() => Promise.all(opened.map(one => one.close())));

const OVF = '<Envelope/>';
const DISK = Buffer.alloc(2 * MiB + 7, 'disk');
const hash = (digest: string, bytes: string | Buffer) => createHash(digest).update(bytes).digest('hex');
const MANIFEST = `SHA1(vm.ovf)= ${hash('sha1', OVF)}\r\nSHA256 (disk.vmdk) = ${hash('sha256', DISK).toUpperCase()}\r\n`;

let made = 0;
async function ova(
  files: Record<string, string | Buffer>,
  pack = (bytes: Buffer) => bytes,
): Promise<AppliancePackage> {
  const path = dir.at(`a${made++}.ova`);
  await writeFile(path, pack(tar(...Object.entries(files).map(([name, bytes]) => tarMember(name, bytes)))));
  const appliance = await openAppliance(path, signal);
  opened.push(appliance);
  return appliance;
}

describe('the descriptor alone', () => {
  test('is what the manifest says', async () => {
    expect(verifyDescriptor(await ova({ 'vm.ovf': OVF, 'vm.mf': MANIFEST }))).toEqual([]);
    expect(verifyDescriptor(await ova({ 'vm.ovf': OVF }))).toEqual([]);
  });

  test('was altered after it was signed, or never signed', async () => {
    const altered = await ova({ 'vm.ovf': '<Envelope />', 'vm.mf': MANIFEST });
    expect(() => verifyDescriptor(altered)).toThrow(
      expect.objectContaining({ msgKey: 'hash_mismatch', params: { member: 'vm.ovf', path: altered.path } }),
    );
    const silent = await ova({ 'vm.ovf': OVF, 'vm.mf': `SHA1(x)= ${hash('sha1', '')}` });
    expect(verifyDescriptor(silent)).toEqual([expect.stringMatching(/says nothing of .*vm\.ovf/)]);
  });
});

describe('a manifest', () => {
  test('is read in all forms in which it is written', () => {
    const [one, two, five] = ['1'.repeat(40), '2'.repeat(64), '5'.repeat(128)];
    const text = `\uFEFFSHA1(a.ovf)= ${one}\r\nSHA256 (./b (1).vmdk) = ${two}\nsha512(ü.iso)=${five.toUpperCase()}\n\n`;
    expect(parseManifest(`${text}SHA1(short)= 12\nMD5(c)= 12\nSHA256(d)= ${'x'.repeat(64)}`)).toEqual({
      entries: [
        { file: 'a.ovf', digest: 'sha1', value: one },
        { file: 'b (1).vmdk', digest: 'sha256', value: two },
        { file: 'ü.iso', digest: 'sha512', value: five.toLowerCase() },
      ],
      unread: ['SHA1(short)= 12', 'MD5(c)= 12', `SHA256(d)= ${'x'.repeat(64)}`],
    });
  });

  test.each([
    ['plain', (bytes: Buffer) => bytes],
    ['packed', gzipSync],
  ] as const)('vouches for the members of a %s OVA', async (_, pack) => {
    const more = `${MANIFEST}SHA1(gone.iso)= ${hash('sha1', '')}\nhello\n`;
    const appliance = await ova({ 'vm.ovf': OVF, 'disk.vmdk': DISK, 'vm.mf': more, 'x.txt': 'x' }, pack);
    const progress: [number, number][] = [];
    const onProgress = (done: number, total: number) => progress.push([done, total]);
    expect(await verifyMembers(appliance, { signal, onProgress })).toEqual([
      'A line of the manifest is not understood: "hello".',
      'The manifest names "gone.iso", which is not there.',
      'The manifest says nothing of "x.txt": whether it is whole cannot be told.',
    ]);
    const total = OVF.length + DISK.length;
    expect(progress.at(-1)).toEqual([total, total]);
    expect(await verifyMembers(appliance, { signal, names: ['disk.vmdk'] })).toHaveLength(2);
    const broken = Buffer.from(DISK);
    broken[MiB]! ^= 1;
    const bad = await ova({ 'vm.ovf': OVF, 'disk.vmdk': broken, 'vm.mf': MANIFEST }, pack);
    await expect(verifyMembers(bad, { signal })).rejects.toMatchObject({
      msgKey: 'hash_mismatch',
      params: { member: 'disk.vmdk', path: bad.path },
    });
    const abort = new AbortController();
    const cancel = { signal: abort.signal, onProgress: () => abort.abort() };
    await expect(verifyMembers(appliance, cancel)).rejects.toMatchObject({ msgKey: 'canceled' });
  });

  test('vouches for the files beside a descriptor, and is missed when there is none', async () => {
    await mkdir(dir.at('ovf'));
    await writeFile(dir.at('ovf/vm.ovf'), OVF);
    await writeFile(dir.at('ovf/disk.vmdk'), DISK);
    await writeFile(dir.at('ovf/vm.mf'), `${MANIFEST}SHA1(../ovf/vm.ovf)= ${hash('sha1', OVF)}\n`);
    const appliance = await openAppliance(dir.at('ovf/vm.ovf'), signal);
    opened.push(appliance);
    expect(await verifyMembers(appliance, { signal, names: ['other.vmdk'] })).toEqual([
      'The manifest names "../ovf/vm.ovf", which is not there.',
      'The manifest says nothing of "other.vmdk": whether it is whole cannot be told.',
    ]);
    await writeFile(dir.at('ovf/bare.ovf'), OVF);
    const bare = await openAppliance(dir.at('ovf/bare.ovf'), signal);
    opened.push(bare);
    expect(await verifyMembers(bare, { signal })).toEqual([expect.stringMatching(/no manifest/)]);
    expect(await checkCertificate(bare, undefined)).toEqual({ signer: null, warnings: [] });
  });
});

describe('a signature', () => {
  let keys: Record<string, KeyObject> = {};
  const pems: Record<string, string> = {};

  /** @param issuer itself when it is left out */
  function issue(name: string, constraints: string, issuer = name): void {
    const request = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '10', '-subj', `/CN=${name}`];
    const by = issuer === name ? [] : ['-CA', `${issuer}.pem`, '-CAkey', `${issuer}.key`];
    const files = ['-keyout', `${name}.key`, '-out', `${name}.pem`];
    tool(
      'openssl',
      [...request, ...by, ...files, '-addext', `basicConstraints=critical,${constraints}`],
      dir.at('.'),
    );
  }

  beforeAll(async () => {
    issue('root', 'CA:TRUE,pathlen:0');
    issue('signer', 'CA:FALSE', 'root');
    issue('middle', 'CA:TRUE', 'root');
    issue('far', 'CA:FALSE', 'middle');
    issue('plain', 'CA:FALSE', 'signer');
    issue('stranger', 'CA:TRUE');
    issue('tall', 'CA:TRUE');
    issue('under', 'CA:TRUE', 'tall');
    issue('leaf', 'CA:FALSE', 'under');
    for (const name of ['root', 'signer', 'middle', 'far', 'plain', 'stranger', 'tall', 'under', 'leaf']) {
      pems[name] = await readFile(dir.at(`${name}.pem`), 'utf8');
      keys[name] = createPrivateKey(await readFile(dir.at(`${name}.key`), 'utf8'));
    }
  });
  afterAll(() => {
    keys = {};
  });

  async function signed(
    by: string,
    chain: string[],
    changes: { digest?: string; of?: string; name?: string } = {},
  ) {
    const { digest = 'SHA256', of = MANIFEST, name = 'vm.mf' } = changes;
    const signature = createSign(digest).update(of).sign(keys[by]!).toString('hex');
    const cert = `${digest}(${name})= ${signature}\r\n${chain.map(one => pems[one]).join('\n')}`;
    return ova({ 'vm.ovf': OVF, 'disk.vmdk': DISK, 'vm.mf': MANIFEST, 'vm.cert': cert });
  }

  test('is taken from whom an authority vouches for', async () => {
    const appliance = await signed('signer', ['signer']);
    const by = (signer: string) => ({ signer: `CN=${signer}`, warnings: [] });
    const authorities = { pem: `${pems.stranger}${pems.root}` };
    expect(await checkCertificate(appliance, authorities)).toEqual(by('signer'));
    const far = await signed('leaf', ['under', 'leaf']);
    expect(await checkCertificate(far, { pem: pems.tall! })).toEqual(by('leaf'));
    const own = await signed('stranger', ['stranger']);
    expect(await checkCertificate(own, { pem: pems.stranger! })).toEqual(by('stranger'));
    const old = await signed('signer', ['signer'], { digest: 'SHA1' });
    expect(await checkCertificate(old, { pem: pems.root! })).toEqual({
      signer: 'CN=signer',
      warnings: [expect.stringMatching(/SHA-1/)],
    });
  });

  test('that nobody checks is told', async () => {
    expect(await checkCertificate(await signed('signer', ['signer']), undefined)).toEqual({
      signer: null,
      warnings: ['Nobody checked the signature "vm.cert": no authorities are given.'],
    });
    expect(await checkCertificate(await ova({ 'vm.ovf': OVF }), { pem: pems.root! })).toEqual({
      signer: null,
      warnings: ['The appliance is not signed: nobody vouches for it.'],
    });
  });

  test.each<[string, () => Promise<AppliancePackage>, string, RegExp]>([
    [
      'of another manifest',
      () => signed('signer', ['signer'], { of: 'x' }),
      'root',
      /not that of its manifest/,
    ],
    ['of another name', () => signed('signer', ['signer'], { name: 'x.mf' }), 'root', /is of "x.mf"/],
    ['by another key', () => signed('stranger', ['signer']), 'root', /not that of its manifest/],
    ['of a stranger', () => signed('signer', ['signer']), 'stranger', /none of the given authorities/],
    [
      'farther than the authority allows',
      () => signed('far', ['far', 'middle']),
      'root',
      /none of the given/,
    ],
    ['from one who is no authority', () => signed('plain', ['plain', 'signer']), 'root', /none of the given/],
    ['without certificate', () => signed('signer', []), 'root', /holds no certificate/],
    ['of nothing', () => ova({ 'vm.ovf': OVF, 'vm.cert': 'x' }), 'root', /no manifest/],
    [
      'that is none',
      () => ova({ 'vm.ovf': OVF, 'vm.mf': MANIFEST, 'vm.cert': 'x' }),
      'root',
      /begins with no/,
    ],
  ])('%s is refused', async (_, make, authority, reason) => {
    await expect(checkCertificate(await make(), { pem: pems[authority]! })).rejects.toEqual(invalid(reason));
  });

  test('is refused before and after its time', async () => {
    const appliance = await signed('signer', ['signer']);
    for (const [now, reason] of [
      [new Date(Date.now() + 11 * 86_400_000), /has expired/],
      [new Date(Date.now() - 86_400_000), /not valid yet/],
    ] as const)
      await expect(checkCertificate(appliance, { pem: pems.root!, now })).rejects.toEqual(invalid(reason));
  });
});

describe('a disk', () => {
  async function parts(...pieces: Buffer[]): Promise<Source[]> {
    const files = Object.fromEntries(
      pieces.map((bytes, index) => [`disk.vmdk.gz.${String(index).padStart(9, '0')}`, bytes]),
    );
    const appliance = await ova({ ...files, 'vm.ovf': OVF });
    const chunks = await chunksOf(appliance, 'disk.vmdk.gz');
    return chunks.map(({ name, sizeBytes, place }) => ({ ...place!, name, sizeBytes }));
  }
  const packed = gzipSync(DISK);
  const third = Math.ceil(packed.length / 3);
  const cut = [packed.subarray(0, third), packed.subarray(third, 2 * third), packed.subarray(2 * third)];
  const options = { signal, compression: 'gzip', mostBytes: mostOfDisk(DISK.length) } as const;

  test('is put together of its parts and unpacked', async () => {
    const progress: [number, number][] = [];
    const onProgress = (done: number, total: number) => progress.push([done, total]);
    const target = dir.at('disk');
    expect(await unpackDisk(await parts(...cut), target, { ...options, onProgress })).toBe(DISK.length);
    expect((await readFile(target)).equals(DISK)).toBe(true);
    expect(progress.at(-1)).toEqual([packed.length, packed.length]);
    const joined = dir.at('joined');
    await unpackDisk(await parts(...cut), joined, { ...options, compression: 'none' });
    expect((await readFile(joined)).equals(packed)).toBe(true);
  });

  test('takes no space for zeros', async () => {
    const target = dir.at('zeros');
    await unpackDisk(await parts(gzipSync(Buffer.alloc(16 * MiB))), target, options);
    const { size, blocks } = await stat(target);
    expect([size, blocks * 512 < MiB]).toEqual([16 * MiB, true]);
  });

  test('of which a part is missing, short or too long is refused', async () => {
    const odd = (...pieces: Buffer[]) => expect(parts(...pieces)).rejects;
    await odd(cut[2]!.subarray(1), cut[0]!).toEqual(invalid(/another size/, 'foreign_disk_invalid'));
    const gap = await ova({ 'd.000000000': 'a', 'd.000000002': 'c', 'vm.ovf': OVF });
    await expect(chunksOf(gap, 'd')).rejects.toEqual(
      invalid(/no part "d.000000001"/, 'foreign_disk_invalid'),
    );
    await odd().toEqual(invalid(/no part "disk.vmdk.gz.000000000"/, 'foreign_disk_invalid'));
  });

  test('that is cut off, larger than declared, or cancelled leaves nothing', async () => {
    const target = dir.at('left');
    const [first, second] = await parts(...cut);
    const short = unpackDisk([first!, second!], target, options);
    await expect(short).rejects.toEqual(
      invalid(/cannot be unpacked: unexpected end/, 'foreign_disk_invalid'),
    );
    const bomb = unpackDisk(await parts(packed), target, { ...options, mostBytes: MiB });
    await expect(bomb).rejects.toEqual(invalid(/more than the 1048576 bytes/, 'foreign_disk_invalid'));
    const abort = new AbortController();
    const cancel = { ...options, signal: abort.signal, onProgress: () => abort.abort() };
    await expect(unpackDisk(await parts(...cut), target, cancel)).rejects.toMatchObject({
      msgKey: 'canceled',
    });
    await expect(stat(target)).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
