import { link, mkdir, readFile, rename, symlink, truncate, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, describe, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { type AppliancePackage, openAppliance, unpackMembers } from './index.ts';
import { invalid, pax, record, scratch, signal, tar, tarMember, tool, withHeader } from './test-kit.ts';

const dir = scratch();
afterAll(dir.remove);

const OVF = '<Envelope/>';
const DISK = Buffer.alloc(3 * MiB + 5, 'disk');
const PLAIN = tar(
  tarMember('vm-disk1.vmdk', DISK),
  tarMember('vm.mf', 'SHA1(vm.ovf)= 00\n'),
  tarMember('vm.ovf', OVF),
  tarMember('vm.cert', 'x'),
);

const opened: AppliancePackage[] = [];
afterAll(() => Promise.all(opened.map(one => one.close())));

let made = 0;
async function file(bytes: Buffer | string, name = `a${made++}.ova`): Promise<string> {
  await writeFile(dir.at(name), bytes);
  return dir.at(name);
}

/** @param args options and what goes in, as it is called in the directory `from` */
const zip = (name: string, from: string, args: string[]) =>
  tool('bsdtar', ['--format=zip', '-cf', dir.at(name), '-C', dir.at(from), ...args]);

async function open(path: string): Promise<AppliancePackage> {
  const appliance = await openAppliance(path, signal);
  opened.push(appliance);
  return appliance;
}

const refusal = async (bytes: Buffer | string, reason: RegExp): Promise<void> => {
  await expect(openAppliance(await file(bytes), signal)).rejects.toEqual(invalid(reason));
};

describe('an OVA', () => {
  test('is read where it stands, its members in any order', async () => {
    const appliance = await open(await file(PLAIN, 'Plain.OVA'));
    expect(appliance).toMatchObject({ kind: 'ova', packing: 'none', descriptor: { name: 'vm.ovf' } });
    expect(appliance.descriptor.bytes.toString()).toBe(OVF);
    expect([appliance.manifest?.name, appliance.certificate?.bytes.toString()]).toEqual(['vm.mf', 'x']);
    const disk = await appliance.find('vm-disk1.vmdk');
    expect(disk).toMatchObject({ sizeBytes: DISK.length, place: { offset: 512 } });
    const whole = await readFile(disk!.place!.path);
    expect(whole.subarray(512, 512 + DISK.length).equals(DISK)).toBe(true);
    await rename(dir.at('Plain.OVA'), dir.at('other.ova'));
    await writeFile(dir.at('Plain.OVA'), 'another');
    expect((await readFile(disk!.place!.path)).length).toBe(PLAIN.length);
  });

  test('is unpacked from gzip, xz and zip, whatever its name says', async () => {
    const plain = await file(PLAIN, 'p.ova');
    await mkdir(dir.at('files'));
    for (const [name, bytes] of [
      ['vm-disk1.vmdk', DISK],
      ['vm.ovf', OVF],
      ['vm.mf', ''],
      ['vm.cert', 'x'],
    ] as const)
      await writeFile(dir.at(`files/${name}`), bytes);
    await file(gzipSync(PLAIN), 'gz.ova');
    tool('sh', ['-c', 'xz -k -c p.ova > xz.ova'], dir.at('.'));
    zip('tar-zip.ova', '.', ['p.ova']);
    zip('zip.ova', 'files', ['.']);
    zip('below.zip', '.', ['files']);
    expect(plain).toBe(dir.at('p.ova'));
    for (const [name, packing] of [
      ['gz.ova', 'gzip'],
      ['xz.ova', 'xz'],
      ['tar-zip.ova', 'zip'],
      ['zip.ova', 'zip'],
      ['below.zip', 'zip'],
    ]) {
      const appliance = await open(dir.at(name!));
      expect([name, appliance.packing, appliance.descriptor.bytes.toString()]).toEqual([name, packing, OVF]);
      const target = dir.at(`${name}.unpacked`);
      const progress: number[] = [];
      await unpackMembers(appliance, new Map([['vm-disk1.vmdk', target]]), {
        signal,
        onProgress: (done, total) => progress.push(done / total),
      });
      expect((await readFile(target)).equals(DISK)).toBe(true);
      expect([progress.at(-1), (await appliance.find('vm-disk1.vmdk'))!.place]).toEqual([1, null]);
    }
  });

  test('may lie one directory down, and have files of macOS beside it', async () => {
    const bytes = tar(
      tarMember('./x/._vm.ovf', 'mac'),
      tarMember('./x/vm.OVF', OVF),
      tarMember('./x/d/e.vmdk', 'd'),
    );
    const appliance = await open(await file(bytes));
    expect(appliance.members.map(({ name }) => name)).toEqual(['._vm.ovf', 'vm.OVF', 'd/e.vmdk']);
  });

  test('has exactly one descriptor', async () => {
    await refusal(
      tar(tarMember('a.ovf', OVF), tarMember('b.ovf', OVF)),
      /several descriptors: "a.ovf", "b.ovf"/,
    );
    await refusal(tar(tarMember('a.vmdk', OVF), tarMember('d/b.ovf', OVF)), /no descriptor.*"a.vmdk"/);
    await refusal(tar(tarMember('a.ovf', '')), /"a.ovf" is empty/);
    await refusal(tar(tarMember('a.ovf', Buffer.alloc(8 * MiB + 1))), /"a.ovf" has 8388609 bytes/);
    await refusal('', /no sound tar/);
    await refusal('hello', /no sound tar/);
    await refusal(Buffer.alloc(4096), /no descriptor/);
  });

  const ovf = tarMember('vm.ovf', OVF);
  const link = (type: 'SymbolicLink' | 'Link') =>
    tarMember('disk.vmdk', '', { type, linkpath: '/etc/passwd' });
  test.each<[string, Buffer, RegExp]>([
    ['a symbolic link', link('SymbolicLink'), /"disk.vmdk" is a link/],
    ['a hard link', link('Link'), /"disk.vmdk" is a link/],
    ['a device', tarMember('disk.vmdk', '', { type: 'BlockDevice' }), /"disk.vmdk" is a link, a device/],
    ['a pipe', tarMember('disk.vmdk', '', { type: 'FIFO' }), /"disk.vmdk" is a link, a device/],
    [
      'an old sparse member',
      withHeader(tarMember('disk.vmdk', 'abc'), block => block.write('S', 156)),
      /"disk.vmdk" is .* packed with holes/,
    ],
    [
      'a sparse member',
      Buffer.concat([pax(record('GNU.sparse.major', '1')), tarMember('disk.vmdk', 'abc')]),
      /"disk.vmdk" is .* packed with holes/,
    ],
    [
      'a size of 2^62',
      withHeader(tarMember('disk.vmdk', ''), block => {
        block.fill(0, 124, 136);
        block[124] = 0x80;
        block[128] = 0x40;
      }),
      /"disk.vmdk"/,
    ],
    ['a size beyond the end', tarMember('disk.vmdk', '').fill(0, 0, 0), /^$/],
    [
      'a size of pax of 2^52',
      Buffer.concat([pax(record('size', String(2 ** 52))), tarMember('disk.vmdk', 'abc')]),
      /"disk.vmdk" is cut off, or its size of 4503599627370496/,
    ],
    ['an absolute name', tarMember('/etc/passwd', 'a'), /"\/etc\/passwd" is not allowed: it is absolute/],
    ['a name that leads out', tarMember('../vm.vmdk', 'a'), /"..\/vm.vmdk" is not allowed/],
    ['a name that leads out from below', tarMember('a/../../vm.vmdk', 'a'), /is not allowed/],
    ['a control character', tarMember('a\nb', 'a'), /"a\\nb" is not allowed/],
    ['a name twice', tarMember('vm.ovf', 'a'), /"vm.ovf" occurs twice/],
    [
      'a name that is no UTF-8',
      withHeader(tarMember('disk.vmdk', 'a'), block => block.write('\xff\xfe', 0, 'latin1')),
      /is not allowed: it is not UTF-8/,
    ],
    ['a wrong checksum', tarMember('disk.vmdk', 'a').fill('9', 148, 153), /checksum, at "disk.vmdk"/],
  ])('with %s is refused', async (what, member, reason) => {
    const broken = what === 'a size beyond the end' ? resized(4096) : member;
    const expected = what === 'a size beyond the end' ? /"disk.vmdk" is cut off/ : reason;
    await refusal(tar(ovf, broken), expected);
    // the same in a stream, where the end is not known
    if (!/cut off/.test(expected.source)) await refusal(gzipSync(tar(ovf, broken)), expected);
    else await refusal(gzipSync(tar(ovf, broken)), /after "disk.vmdk"/);
  });

  const resized = (bytes: number): Buffer => tarMember('disk.vmdk', '', { size: bytes });

  test('is refused when it is cut off anywhere', async () => {
    for (const bytes of [700, 512 + 1024, PLAIN.length - 1024, PLAIN.length - 512])
      await refusal(PLAIN.subarray(0, bytes), /"vm.*"/);
    const packed = gzipSync(PLAIN);
    await refusal(packed.subarray(0, packed.length - 4), /cannot be unpacked: unexpected end/);
    await file(PLAIN, 'cut');
    tool('sh', ['-c', 'xz -k -c cut > whole.xz'], dir.at('.'));
    const whole = await readFile(dir.at('whole.xz'));
    await refusal(whole.subarray(0, whole.length - 8), /cannot be unpacked: .*nexpected end/);
    whole[whole.length >> 1]! ^= 0xff;
    await refusal(whole, /cannot be unpacked: /);
  });

  test('with thousands of members is refused', async () => {
    const members = Array.from({ length: 5_000 }, (_, index) => tarMember(`m${index}`, ''));
    await refusal(tar(...members, ovf), /5001 members, at most 4096/);
  });

  test('in a zip with a link, a wrong checksum or a name that leads out is refused', async () => {
    await mkdir(dir.at('z'));
    await writeFile(dir.at('z/vm.ovf'), OVF);
    await symlink('/etc/passwd', dir.at('z/disk.vmdk'));
    zip('link.zip', 'z', ['.']);
    await refusal(await readFile(dir.at('link.zip')), /disk.vmdk" is a link/);
    zip('stored.zip', 'z', ['--options=zip:compression=store', 'vm.ovf']);
    const stored = await readFile(dir.at('stored.zip'));
    stored.write('<Anvelope/>', stored.indexOf(OVF));
    await refusal(stored, /"vm.ovf" has a wrong checksum/);
    await mkdir(dir.at('z/in'));
    zip('out.zip', 'z/in', ['-P', '../vm.ovf']);
    await refusal(await readFile(dir.at('out.zip')), /no sound zip: invalid relative path/);
    await refusal((await readFile(dir.at('out.zip'))).subarray(0, 60), /no sound zip/);
    zip('secret.zip', 'z', ['--options=zip:encryption=zipcrypt', '--passphrase=secret', 'vm.ovf']);
    await refusal(await readFile(dir.at('secret.zip')), /"vm.ovf" is encrypted/);
  });

  test('is a regular file, or not opened', async () => {
    const plain = await file(PLAIN);
    await symlink(plain, dir.at('link.ova'));
    tool('mkfifo', [dir.at('pipe.ova')]);
    for (const name of ['link.ova', 'pipe.ova', '.'])
      await expect(openAppliance(dir.at(name), signal)).rejects.toMatchObject({ msgKey: 'not_a_file' });
    await expect(openAppliance(dir.at('none.ova'), signal)).rejects.toMatchObject({ msgKey: 'io_failed' });
  });

  test('stops being read when it is cancelled, and leaves neither files nor programs', async () => {
    const abort = new AbortController();
    const appliance = await open(dir.at('xz.ova'));
    const target = dir.at('canceled');
    const onProgress = () => abort.abort();
    const work = unpackMembers(appliance, new Map([['vm-disk1.vmdk', target]]), {
      signal: abort.signal,
      onProgress,
    });
    await expect(work).rejects.toMatchObject({ msgKey: 'canceled' });
    await expect(readFile(target)).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(openAppliance(dir.at('xz.ova'), abort.signal)).rejects.toMatchObject({ msgKey: 'canceled' });
    expect(tool('ps', ['-o', 'comm=', '--ppid', String(process.pid)])).not.toMatch(/xz|prlimit/);
  });

  test('is not unpacked over what is there', async () => {
    const appliance = await open(dir.at('xz.ova'));
    const work = unpackMembers(appliance, new Map([['vm-disk1.vmdk', dir.at('p.ova')]]), { signal });
    await expect(work).rejects.toMatchObject({ msgKey: 'io_failed' });
    expect((await readFile(dir.at('p.ova'))).equals(PLAIN)).toBe(true);
  });

  test('that is a bomb needs neither memory nor space', async () => {
    // zeros before the others: what is bounded is the stream's length, and nothing of it is kept
    const zeros = 'head -c 256M /dev/zero';
    const header = tarMember('big.vmdk', '', { size: 256 * MiB });
    await writeFile(dir.at('big-header'), header);
    tool('sh', ['-c', `(cat big-header; ${zeros}; cat p.ova) | gzip -1 > bomb.ova`], dir.at('.'));
    const before = process.memoryUsage().rss;
    const appliance = await open(dir.at('bomb.ova'));
    expect(appliance.members.map(({ sizeBytes }) => sizeBytes)).toContain(256 * MiB);
    expect(process.memoryUsage().rss - before).toBeLessThan(300 * MiB);
  });
});

describe('an OVF', () => {
  test('has the plain files beside it as members, by name', async () => {
    await mkdir(dir.at('ovf'));
    await writeFile(dir.at('ovf/VM.OVF'), OVF);
    await writeFile(dir.at('ovf/VM.MF'), 'SHA1(x)= 00');
    await writeFile(dir.at('ovf/Ünïx %20 disk.vmdk'), 'disk');
    await writeFile(dir.at('outside.vmdk'), 'disk');
    await symlink('../outside.vmdk', dir.at('ovf/link.vmdk'));
    await mkdir(dir.at('ovf/sub'));
    await link(dir.at('outside.vmdk'), dir.at('ovf/sub/in.vmdk'));
    const appliance = await open(dir.at('ovf/VM.OVF'));
    expect(appliance).toMatchObject({
      kind: 'ovf',
      packing: 'none',
      manifest: { name: 'VM.MF' },
      certificate: null,
    });
    const disk = await appliance.find('Ünïx %20 disk.vmdk');
    expect(disk).toMatchObject({ sizeBytes: 4, place: { offset: 0 } });
    expect(await readFile(disk!.place!.path, 'utf8')).toBe('disk');
    for (const name of ['../outside.vmdk', 'sub/in.vmdk', '/etc/passwd', '..', '', 'none', 'a\0b'])
      expect(await appliance.find(name)).toBeUndefined();
    for (const name of ['link.vmdk', 'sub'])
      await expect(appliance.find(name)).rejects.toMatchObject({ msgKey: 'not_a_file' });
    expect(appliance.members.map(({ name }) => name)).toEqual([
      'VM.OVF',
      'VM.MF',
      basename('/Ünïx %20 disk.vmdk'),
    ]);
  });

  test('that is too large, or empty, is refused', async () => {
    await writeFile(dir.at('large.ovf'), '');
    await expect(openAppliance(dir.at('large.ovf'), signal)).rejects.toEqual(invalid(/empty/));
    await truncate(dir.at('large.ovf'), 2 ** 40);
    await expect(openAppliance(dir.at('large.ovf'), signal)).rejects.toEqual(invalid(/1099511627776 bytes/));
  });
});
