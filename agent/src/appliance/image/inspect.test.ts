import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync } from 'node:fs';
import { readFile, stat, writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { qemuImg } from '../../disks/index.ts';
import { inspectImage, openAppliance, type Source } from '../index.ts';
import {
  invalid,
  scratch,
  signal,
  streamVmdk,
  tar,
  tarMember,
  tool,
  VMDK_TEXT,
  type VmdkChanges,
} from '../test-kit.ts';
import type { ImageFormat } from './image.ts';

const dir = scratch();
afterAll(dir.remove);

/** A disk of a guest: data at its beginning, in the middle, in its last sector. */
const CONTENT = Buffer.alloc(3 * MiB);
for (let at = 0; at < 100_000; at++) CONTENT[at] = (at * at) >> 3;
CONTENT.fill('middle', MiB, MiB + 70_000);
CONTENT.fill('end', 3 * MiB - 512);

const IMAGES: [string, ImageFormat, string[]][] = [
  ['stream.vmdk', 'vmdk', ['-o', 'subformat=streamOptimized']],
  ['sparse.vmdk', 'vmdk', ['-o', 'subformat=monolithicSparse']],
  ['fixed.vhd', 'vpc', ['-o', 'subformat=fixed,force_size=on']],
  ['dynamic.vhd', 'vpc', ['-o', 'force_size=on']],
  ['disk.vhdx', 'vhdx', []],
  ['disk.vdi', 'vdi', []],
  ['disk.qcow2', 'qcow2', []],
  ['packed.qcow2', 'qcow2', ['-c']],
  ['old.qcow2', 'qcow2', ['-o', 'compat=0.10']],
  ['parts.qcow2', 'qcow2', ['-o', 'extended_l2=on,cluster_size=128k']],
  ['small.qcow2', 'qcow2', ['-o', 'cluster_size=512']],
];
const NAMES: [string, ImageFormat][] = [
  ...IMAGES.map(([name, format]): [string, ImageFormat] => [name, format]),
  ['footer.vmdk', 'vmdk'],
  ['disk.raw', 'raw'],
];

beforeAll(async () => {
  await writeFile(dir.at('disk.raw'), CONTENT);
  for (const [name, format, options] of IMAGES)
    tool('qemu-img', ['convert', '-f', 'raw', '-O', format, ...options, dir.at('disk.raw'), dir.at(name)]);
  await writeFile(dir.at('footer.vmdk'), streamVmdk(CONTENT));
});

async function source(name: string): Promise<Source> {
  return { path: dir.at(name), offset: 0, sizeBytes: (await stat(dir.at(name))).size, name };
}

async function made(name: string, bytes: Buffer | string): Promise<Source> {
  await writeFile(dir.at(name), bytes);
  return source(name);
}

const refusal = async (bytes: Buffer | string, reason: RegExp, declared?: ImageFormat): Promise<void> => {
  const work = inspectImage(await made('refused', bytes), declared, signal);
  await expect(work).rejects.toEqual(invalid(reason, 'foreign_disk_invalid'));
};

async function digest(path: string): Promise<string> {
  return createHash('sha256')
    .update(await readFile(path))
    .digest('hex');
}

async function contentOf(blockdev: object): Promise<Buffer> {
  const target = dir.at('converted.raw');
  await qemuImg('convert', ['-O', 'raw', `json:${JSON.stringify(blockdev)}`, target], { signal });
  return readFile(target);
}

describe('an image', () => {
  test.each(NAMES)('%s is told, and read as it is, also inside of an OVA', async (name, format) => {
    const before = await digest(dir.at(name));
    const own = await inspectImage(await source(name), format, signal);
    expect(own).toMatchObject({ format, virtualSizeBytes: CONTENT.length, warnings: [] });
    expect((await contentOf(own.blockdev)).equals(CONTENT)).toBe(true);
    const members = [
      tarMember('vm.ovf', 'x'),
      tarMember(name, await readFile(dir.at(name))),
      tarMember('z', 'z'),
    ];
    await writeFile(dir.at('in.ova'), tar(...members));
    const appliance = await openAppliance(dir.at('in.ova'), signal);
    try {
      const { place, sizeBytes } = (await appliance.find(name))!;
      const inside = await inspectImage({ ...place!, sizeBytes, name }, undefined, signal);
      expect(inside).toMatchObject({ format, virtualSizeBytes: CONTENT.length, warnings: [] });
      expect((await contentOf(inside.blockdev)).equals(CONTENT)).toBe(true);
    } finally {
      await appliance.close();
    }
    expect(await digest(dir.at(name))).toBe(before);
  });

  test('that is declared as another one is taken as what it is, with a warning', async () => {
    const { format, warnings } = await inspectImage(await source('disk.qcow2'), 'vmdk', signal);
    expect([format, warnings]).toEqual(['qcow2', ['"disk.qcow2" is declared as vmdk and is qcow2.']]);
    const raw = await inspectImage(await source('disk.qcow2'), 'raw', signal);
    expect(raw.format).toBe('raw');
    await expect(inspectImage(await source('disk.raw'), 'vmdk', signal)).rejects.toEqual(
      invalid(/declared as vmdk, and is no such image/, 'foreign_disk_invalid'),
    );
  });

  test('of a raw disk that does not end with a sector is filled up', async () => {
    const raw = await made('odd.raw', CONTENT.subarray(0, MiB + 700));
    const { blockdev, virtualSizeBytes } = await inspectImage(raw, undefined, signal);
    expect(virtualSizeBytes).toBe(MiB + 1024);
    expect((await contentOf(blockdev)).subarray(0, MiB + 700).equals(CONTENT.subarray(0, MiB + 700))).toBe(
      true,
    );
  });

  test('of a VHD whose geometry is smaller than the disk is read to its end', async () => {
    const path = dir.at('geometry.vhd');
    tool('qemu-img', ['convert', '-f', 'raw', '-O', 'vpc', '-o', 'force_size=on', dir.at('disk.raw'), path]);
    const bytes = await readFile(path);
    for (const at of [0, bytes.length - 512]) {
      bytes.write('vbox', at + 28);
      bytes.fill(0, at + 64, at + 68);
      const sum = bytes.subarray(at, at + 512).reduce((total, byte) => total + byte, 0);
      bytes.writeUInt32BE(~sum >>> 0, at + 64);
    }
    const { blockdev, virtualSizeBytes } = await inspectImage(await made('vbox.vhd', bytes), 'vpc', signal);
    expect(virtualSizeBytes).toBe(CONTENT.length);
    expect((await contentOf(blockdev)).equals(CONTENT)).toBe(true);
  });

  const cuttable = NAMES.filter(([, format]) => format !== 'raw');
  test.each(cuttable)('%s that was cut off is refused, unless nothing is missing', async (name, format) => {
    const whole = await readFile(dir.at(name));
    let refused = 0;
    const cuts = [512, 4096, 70_000, whole.length >> 1, whole.length - 600, whole.length - 100];
    for (const missing of cuts) {
      const cut = await made('cut', whole.subarray(0, whole.length - missing));
      const found = await inspectImage(cut, format, signal).catch(error => {
        expect(error).toMatchObject({
          msgKey: expect.stringMatching(/^(foreign_disk_invalid|qemu_img_failed)$/),
        });
      });
      if (found === undefined) refused++;
      else expect([missing, (await contentOf(found.blockdev)).equals(CONTENT)]).toEqual([missing, true]);
    }
    expect(refused).toBeGreaterThanOrEqual(3);
  });

  test('that is empty, packed or half of one is refused', async () => {
    await refusal('', /empty/);
    await refusal(Buffer.from('1f8b0800', 'hex'), /compressed with gzip/, 'vmdk');
    await refusal(Buffer.from('fd377a585a00', 'hex'), /compressed with xz/);
    await refusal('COWD', /one of several files/, 'vmdk');
    await expect(
      inspectImage({ ...(await source('disk.raw')), offset: 512 }, undefined, signal),
    ).rejects.toEqual(invalid(/cut off/, 'foreign_disk_invalid'));
  });
});

describe('a VMDK', () => {
  const changed = (changes: VmdkChanges) => streamVmdk(CONTENT, changes);
  const text = (from: string | RegExp, to: string) => ({ text: VMDK_TEXT.replace(from, to) });
  test.each<[string, VmdkChanges, RegExp]>([
    ['no capacity', { header: block => block.fill(0, 12, 20) }, /no capacity/],
    ['no capacity in its footer', { footer: block => block.fill(0, 12, 20) }, /no capacity/],
    ['a footer of another disk', { footer: block => block.writeUInt8(2, 13) }, /contradicts/],
    ['a directory nowhere', { footer: block => block.fill(0xff, 56, 64) }, /contradicts/],
    ['an impossible capacity', { header: block => block.fill(0xee, 12, 20) }, /capacity is impossible/],
    ['impossible grains', { header: block => block.fill(0xff, 20, 28) }, /impossible size/],
    [
      'a text elsewhere',
      { header: b => b.writeUInt8(3, 28), footer: b => b.writeUInt8(3, 28) },
      /does not follow/,
    ],
    ['a parent', text('RW ', 'parentFileNameHint="/etc/passwd"\nRW '), /differs from another/],
    ['a parent of whom only the id is known', text('ffffffff', '12345678'), /differs from another/],
    ['two extents', text('RW ', 'RW 8 SPARSE "b"\nRW '), /in other files/],
    ['a flat extent', text('SPARSE "generated-stream.vmdk"', 'FLAT "/etc/passwd" 0'), /in other files/],
    ['another kind', text('streamOptimized', 'monolithicFlat'), /kind "monolithicFlat"/],
    ['no kind', text(/createType.*/, ''), /kind ""/],
  ])('with %s is refused', async (_, changes, reason) => {
    await refusal(changed(changes), reason, 'vmdk');
  });

  test('that is text is refused, whatever it is declared as', async () => {
    const flat = `# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType="monolithicFlat"\nRW 1 FLAT "/etc/passwd" 0\n`;
    await refusal(flat, /only the text of a VMDK/, 'vmdk');
    await refusal(flat, /only the text of a VMDK/);
    await refusal(` ${flat}`, /no such image/, 'vmdk');
  });
});

describe('a qcow2', () => {
  const overlay = async (name: string, backing: string, format: string): Promise<Buffer> => {
    tool('qemu-img', ['create', '-q', '-u', '-f', 'qcow2', '-b', backing, '-F', format, dir.at(name), '1M']);
    return readFile(dir.at(name));
  };

  test('that stands on another file, or keeps its data in one, is refused', async () => {
    const json = 'json:{"driver":"raw","file":{"driver":"file","filename":"/etc/passwd"}}';
    await refusal(await overlay('a.qcow2', '/etc/passwd', 'raw'), /stands on another image/);
    await refusal(await overlay('b.qcow2', json, 'raw'), /stands on another image/);
    const data = `data_file=${dir.at('data')},data_file_raw=on`;
    tool('qemu-img', ['create', '-q', '-f', 'qcow2', '-o', data, dir.at('c.qcow2'), '1M']);
    await refusal(await readFile(dir.at('c.qcow2')), /content lies in another file/);
  });

  test('whose tables lie over one another is refused: a small file could name as many as take days to read', async () => {
    const options = 'cluster_size=2M';
    tool('qemu-img', ['create', '-q', '-f', 'qcow2', '-o', options, dir.at('t.qcow2'), '32T']);
    const bytes = await readFile(dir.at('t.qcow2'));
    const first = Number(bytes.readBigUInt64BE(40));
    const many = Buffer.concat([bytes, Buffer.alloc(4 * MiB)]);
    const entries = bytes.readUInt32BE(36);
    for (let entry = 0; entry < entries; entry += 1)
      many.writeBigUInt64BE(BigInt(bytes.length - 2 * MiB + 512 * entry), first + 8 * entry);
    await refusal(many, /tables lie where none can lie/);
    // tables of saved states come behind those of the disk: they are none of its data
    const states = Buffer.from(bytes);
    states.writeBigUInt64BE(BigInt(64 * MiB), 24);
    for (let entry = 1; entry < entries; entry += 1)
      states.writeBigUInt64BE(BigInt(64 * MiB * entry), first + 8 * entry);
    const { virtualSizeBytes } = await inspectImage(await made('states-behind', states), 'qcow2', signal);
    expect(virtualSizeBytes).toBe(64 * MiB);
  });

  test('that is encrypted, damaged or of the future is refused; saved states inside are told', async () => {
    const plain = await readFile(dir.at('disk.qcow2'));
    const features = (bits: number) => {
      const copy = Buffer.from(plain);
      copy.writeBigUInt64BE(BigInt(bits), 72);
      return copy;
    };
    const luks = Buffer.from(plain);
    luks.writeUInt32BE(2, 32);
    await refusal(luks, /encrypted/);
    await refusal(features(2), /marked as damaged/);
    await refusal(features(1 << 20), /not known/);
    tool('qemu-img', ['convert', '-O', 'qcow2', dir.at('disk.qcow2'), dir.at('states.qcow2')]);
    tool('qemu-img', ['snapshot', '-c', 'one', dir.at('states.qcow2')]);
    const { warnings } = await inspectImage(await source('states.qcow2'), 'qcow2', signal);
    expect(warnings).toEqual(['"states.qcow2" has 1 saved states inside, which are left out.']);
  });
});

/** A VHDX that says it stands on another, with a locator such as Hyper-V writes. */
function withParent(vhdx: Buffer, parent: string): Buffer {
  const copy = Buffer.from(vhdx);
  const region = copy.indexOf('metadata');
  const parameters = region + 32;
  copy.writeUInt32LE(2, region + copy.readUInt32LE(parameters + 16) + 4);
  const locator = copy.readUInt16LE(region + 10);
  const entry = parameters + 32 * locator;
  copy.writeUInt16LE(locator + 1, region + 10);
  Buffer.from('2d5fd3a80bb34d459f4c8e1fbd4a7f4e', 'hex').copy(copy, entry);
  copy.writeUInt32LE(0x1_2000, entry + 16);
  copy.writeUInt32LE(2048, entry + 20);
  copy.write(`absolute_win32_path${parent}`, region + 0x1_2000, 'utf16le');
  return copy;
}

describe('other formats', () => {
  test('that hold a difference only, or were not closed, are refused', async () => {
    const vhd = await readFile(dir.at('dynamic.vhd'));
    vhd.writeUInt32BE(4, 60);
    vhd.writeUInt32BE(4, vhd.length - 512 + 60);
    await refusal(vhd, /differs from another/);
    const vdi = await readFile(dir.at('disk.vdi'));
    vdi.write('parent', 0x1b8);
    await refusal(vdi, /differs from another/);
    const vhdx = await readFile(dir.at('disk.vhdx'));
    const differing = withParent(vhdx, '/etc/passwd');
    await refusal(differing, /differs from another/);
    const open = Buffer.from(vhdx);
    for (const header of [64 * 1024, 128 * 1024]) open.write('log', header + 48);
    await refusal(open, /not closed: its log must be replayed/);
  });
});

test('no file of the host is opened because an image names it', async () => {
  const victim = dir.at('victim');
  await writeFile(victim, Buffer.alloc(MiB, 'secret'));
  const hostile: Record<string, Buffer | string> = {
    'flat-text': `# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType="monolithicFlat"\nRW 8 FLAT "${victim}" 0\n`,
    'no-capacity': streamVmdk(CONTENT, {
      header: block => block.fill(0, 12, 20),
      text: `# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType="monolithicFlat"\nRW 8 FLAT "${victim}" 0\n`,
    }),
    hint: streamVmdk(CONTENT, { text: VMDK_TEXT.replace('RW ', `parentFileNameHint="${victim}"\nRW `) }),
    'hint-id': streamVmdk(CONTENT, {
      text: VMDK_TEXT.replace('ffffffff', '1234abcd').replace('RW ', `parentFileNameHint="${victim}"\nRW `),
    }),
    extent: streamVmdk(CONTENT, { text: VMDK_TEXT.replace('RW ', `RW 8 FLAT "${victim}" 0\nRW `) }),
  };
  for (const [name, backing] of [
    ['backing', victim],
    ['backing-json', `json:{"driver":"raw","file":{"driver":"file","filename":"${victim}"}}`],
  ] as const) {
    tool('qemu-img', [
      'create',
      '-q',
      '-u',
      '-f',
      'qcow2',
      '-b',
      backing,
      '-F',
      'raw',
      dir.at('h.qcow2'),
      '1M',
    ]);
    hostile[name] = await readFile(dir.at('h.qcow2'));
  }
  const data = `data_file=${victim},data_file_raw=on`;
  tool('qemu-img', ['create', '-q', '-f', 'qcow2', '-o', data, dir.at('h.qcow2'), '1M']);
  hostile['data-file'] = await readFile(dir.at('h.qcow2'));
  hostile.locator = withParent(await readFile(dir.at('disk.vhdx')), victim);
  const names = Object.keys(hostile);
  for (const name of names) await writeFile(dir.at(`hostile-${name}`), hostile[name]!);
  // a harmless one: it shows that what QEMU opens is seen
  await writeFile(dir.at('hostile-none'), streamVmdk(CONTENT));
  const module = new URL('inspect.ts', import.meta.url).href;
  const script = `const { inspectImage } = await import('${module}');
    const { statSync } = await import('node:fs');
    for (const name of ${JSON.stringify([...names, 'none'])})
      for (const declared of ['vmdk', 'qcow2', 'raw', undefined]) {
        const path = '${dir.at('hostile-')}' + name;
        const source = { path, offset: 0, sizeBytes: statSync(path).size, name };
        await inspectImage(source, declared, new AbortController().signal).then(
          found => console.log(name, declared, found.format),
          error => console.log(name, declared, error.msgKey));
      }`;
  const record = dir.at('opened.log');
  const watch = ['-f', '-qq', '-s', '4096', '-e', 'trace=open,openat,openat2', '-o', record];
  const node = [process.execPath, '--no-warnings', '--input-type=module', '-e', script];
  const { stdout, stderr } = spawnSync('strace', [...watch, ...node], { encoding: 'utf8' });
  expect(stderr).toBe('');
  // raw is what none of them is hostile as, but for the text
  for (const line of stdout.trim().split('\n'))
    expect(line).toMatch(/ raw raw$|^none \w+ vmdk$| foreign_disk_invalid$/);
  const opened = await readFile(record, 'utf8');
  expect(opened).toContain('hostile-none"');
  expect(opened).not.toContain(victim);
  expect(stdout.trim().split('\n')).toHaveLength(4 * (names.length + 1));
});

const SAMPLES = new URL('../../../../../shared/fixtures/ovf/', import.meta.url).pathname;
const samples = existsSync(SAMPLES) ? readdirSync(SAMPLES).filter(name => name.endsWith('.vmdk')) : [];
(samples.length > 0 ? test : test.skip)('public samples are taken', async () => {
  for (const name of samples) {
    const path = `${SAMPLES}${name}`;
    const found = inspectImage({ path, offset: 0, sizeBytes: (await stat(path)).size, name }, 'vmdk', signal);
    await expect(found).resolves.toMatchObject({ format: 'vmdk' });
  }
});
