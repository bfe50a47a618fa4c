/** Archives without manifest, made by GNU tar out of qemu-img's images: what they are read as, and what is refused by its name. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Manifest } from '../../archive/index.ts';
import { scratch, signal, tool } from '../../archive/test-kit.ts';
import { openBackup } from '../archives/source.ts';
import { readStates } from '../restore/states.ts';

const dir = scratch();
afterAll(() => dir.remove());

const UUID = '3f1a2b4c-5d6e-4f70-8a91-b2c3d4e5f601';

const disk = (target: string, path: string, device = 'disk') =>
  `<disk type='file' device='${device}'><driver name='qemu' type='qcow2'/><source file='${path}'/><target dev='${target}' bus='virtio'/></disk>`;
const domain = (devices: string, more = '') =>
  `<domain type='kvm'><name>web server</name><uuid>${UUID}</uuid><memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type></os>${more}<devices>${devices}</devices></domain>`;
const state = (name: string, disks: [string, string][], memory = '', parent = '') =>
  `<domainsnapshot><name>${name}</name><creationTime>1700000000</creationTime>${parent && `<parent><name>${parent}</name></parent>`}${memory}<disks>${disks.map(([target, path]) => `<disk name='${target}' snapshot='external' type='file'><source file='${path}'/></disk>`).join('')}</disks>${domain(disk('vda', '/there/web.qcow2'))}</domainsnapshot>`;

/** What `qemu-img` is told to make, in the archive's directory: a name, and what it stands on. */
type Images = Record<string, string | null>;

let made = 0;

/** Packs images of 1 MiB, texts and whatever a shell makes besides. */
async function pack(
  images: Images,
  texts: Record<string, string>,
  { shell = 'true', tar = 'tar -cf', ending = 'tar' } = {},
): Promise<string> {
  made += 1;
  const home = dir.at(`home ${made}`);
  mkdirSync(home);
  for (const [name, backing] of Object.entries(images)) {
    const on = backing === null ? [] : ['-u', '-b', backing, '-F', 'qcow2'];
    await tool('qemu-img', ['create', '-q', '-f', 'qcow2', ...on, `${home}/${name}`, '1M']);
  }
  for (const [name, text] of Object.entries(texts)) writeFileSync(`${home}/${name}`, text);
  const path = dir.at(`packed-${made}.${ending}`);
  await tool('bash', ['-euc', `${shell}\n${tar} ${path} .`], home);
  return path;
}

async function read(path: string): Promise<{ manifest: Manifest; unknown: string[] }> {
  const { archive, manifest, unknown } = await openBackup(path, '', signal);
  await archive.close();
  return { manifest, unknown };
}

const layersOf = ({ disks }: Manifest) =>
  Object.fromEntries(disks.map(({ target, layers }) => [target, layers.map(({ member }) => member)]));

const ONE = { '1_web.xml': domain(disk('vda', '/there/web.qcow2')) };

describe.each([
  ['plain', 'tar -cf', 'tar'],
  ['one stream of zstd', 'tar --zstd -cf', 'tar.zst'],
  ['old format', 'tar --format=v7 -cf', 'tar'],
  ['one directory up', "tar --transform='s,^\\.,a web,' --format=posix -cf", 'tar'],
])('packed as %s', (_how, tar, ending) => {
  test('disks, layers, images and saved states are told by names and headers', async () => {
    const path = await pack(
      { 'web.qcow2': null, 'web.s1.snapshot': '/there/web.qcow2', 'data disk.qcow2': null },
      {
        '1_web server.xml': domain(disk('vda', '/old/path')),
        '12_web server.xml': domain(
          `${disk('vda', '/there/web.s1.snapshot')}${disk('vdb', '/else where/data disk.qcow2')}${disk('sda', '/isos/cd.iso', 'cdrom')}${disk('sdb', '/isos/none.iso', 'cdrom')}`,
        ),
        's1.xml': state('s1', [['vda', '/there/web.s1.snapshot']]),
        'cd.iso': 'an image',
        'note.txt': 'nothing of the VM',
      },
      { tar, ending },
    );
    const { manifest, unknown } = await read(path);
    expect(layersOf(manifest)).toEqual({
      vda: ['web.qcow2', 'web.s1.snapshot'],
      vdb: ['data disk.qcow2'],
    });
    expect(manifest.disks[0]!.layers.map(({ formerPath }) => formerPath)).toEqual([
      '/there/web.qcow2',
      '/there/web.s1.snapshot',
    ]);
    expect(manifest).toMatchObject({
      vm: { uuid: UUID, name: 'web server' },
      incremental: false,
      states: [{ number: 12, name: null, consistency: 'crash', xmlMember: '12_web server.xml' }],
      isos: [
        { target: 'sda', member: 'cd.iso' },
        { target: 'sdb', member: null },
      ],
      snapshots: [{ name: 's1', current: true, memoryMember: null }],
    });
    expect(manifest.disks.map(({ virtualSizeBytes }) => virtualSizeBytes)).toEqual([2 ** 20, 2 ** 20]);
    expect(unknown).toEqual([
      expect.stringContaining('no manifest'),
      expect.stringContaining('configurations of several states'),
    ]);
  });
});

test.each<[string, Images, string, Record<string, string[]>]>([
  [
    'a disk under any name, when there is but one',
    { 'x.qcow2': null },
    disk('vda', '/there/web.img'),
    { vda: ['x.qcow2'] },
  ],
  [
    'layers called after their disk and saved state',
    { 'abc.qcow2': null, 'abc_night.snapshot': '/there/vm.qcow2' },
    disk('vda', '/there/vm.night'),
    { vda: ['abc.qcow2', 'abc_night.snapshot'] },
  ],
  [
    'names without their endings',
    { 'a.qcow2': null, 'b.qcow2': null, 'a.1.snapshot': '/x/a' },
    `${disk('vda', '/x/a.1')}${disk('vdb', '/y/b.img')}`,
    { vda: ['a.qcow2', 'a.1.snapshot'], vdb: ['b.qcow2'] },
  ],
])('%s', async (_what, images, devices, wanted) => {
  const { manifest } = await read(await pack(images, { 'web.xml': domain(devices) }));
  expect(layersOf(manifest)).toEqual(wanted);
});

test('what the definition names and the archive lacks, or the other way round, is told', async () => {
  const devices = `${disk('vda', '/there/web.qcow2')}${disk('vdb', '/there/gone.qcow2')}`;
  const xml = domain(devices).replace('hvm</type>', `hvm</type><nvram>/var/x_VARS.fd</nvram>`);
  const path = await pack(
    { 'web.qcow2': null, 'web.top.snapshot': '/there/web.qcow2' },
    { '1_web.xml': xml, 'old.memory': 'of some instant', 'broken.xml': '<domainsnapshot><na' },
  );
  const { manifest, unknown } = await read(path);
  expect(layersOf(manifest)).toEqual({ vda: ['web.qcow2'] });
  expect(manifest.excludedDisks).toMatchObject([{ target: 'vdb', reason: 'it is not in the archive' }]);
  const text = unknown.join('\n');
  for (const part of [
    '"broken.xml" is left out',
    '"web.top.snapshot": not restored',
    'UEFI variables',
    '"old.memory"',
  ])
    expect(text).toContain(part);
});

test('a saved state whose memory is there comes with it, and one whose memory is not stays out', async () => {
  const memory = (file: string) => `<memory snapshot='external' file='/there/${file}'/>`;
  const { manifest, unknown } = await read(
    await pack(
      { 'web.qcow2': null, 'web.b.snapshot': '/there/web.qcow2' },
      {
        '1_web.xml': domain(disk('vda', '/there/web.b.snapshot')),
        'a.xml': state('a', [['vda', '/there/web.b.snapshot']], memory('a.memory')),
        'b.xml': state('b', [['vda', '/there/web.b.snapshot']], memory('b.memory')),
        'a.memory': 'memory',
      },
    ),
  );
  expect(manifest.snapshots).toMatchObject([
    { name: 'a', memoryMember: 'a.memory', formerMemoryPath: '/there/a.memory' },
  ]);
  expect(unknown.join()).toContain('"b" is left out: its memory is not in the archive');
});

test('an image that stands on a file of elsewhere is refused, unless the definition names a template', async () => {
  const images = { 'clone.qcow2': '/templates/base.qcow2' };
  const path = await pack(images, { '1_web.xml': domain(disk('vda', '/there/clone.qcow2')) });
  await expect(read(path)).rejects.toMatchObject({
    params: { reason: '"clone.qcow2" stands on /templates/base.qcow2, which is not in the archive' },
  });
});

const TWO = `${disk('vda', '/x/a.qcow2')}${disk('vdb', '/x/b.qcow2')}`;

/** What a shell makes besides. */
const SHELL: Record<string, string> = {
  'a sparse member': 'truncate -s 9M web.qcow2',
  'a link': 'ln -s x.qcow2 web.qcow2',
};

test.each<[string, Images, Record<string, string>, string]>([
  ['no configuration', { 'web.qcow2': null }, {}, 'nor the configuration of a VM'],
  [
    'two of one number',
    { 'web.qcow2': null },
    { '1_a.xml': ONE['1_web.xml'], '01_b.xml': ONE['1_web.xml'] },
    '"01_b.xml"',
  ],
  ['none of its disks', {}, ONE, 'none of the disks that "1_web.xml" names'],
  ['a raw disk', {}, { ...ONE, 'web.qcow2': 'x'.repeat(2000) }, '"web.qcow2" is not a qcow2 image'],
  ['a missing layer', { 'web.qcow2': '/there/base.qcow2' }, ONE, '/there/base.qcow2, which is not'],
  [
    'a file that stands on its own name',
    { 'web.qcow2': '/base/web.qcow2' },
    ONE,
    '/base/web.qcow2, which is not',
  ],
  [
    'a circle',
    { 'web.qcow2': '/x/b.qcow2', 'b.qcow2': '/x/c.qcow2', 'c.qcow2': '/x/b.qcow2' },
    ONE,
    'stands on itself, by other layers',
  ],
  [
    'other names',
    { 'm.qcow2': null, 'n.qcow2': null },
    { '1_web.xml': domain(TWO) },
    'which of the disks vda (/x/a.qcow2), vdb',
  ],
  [
    'one image for two',
    { 'a.qcow2': '/x/base.qcow2', 'b.qcow2': '/y/base.qcow2', 'base.qcow2': null },
    { '1_web.xml': domain(TWO) },
    '"base.qcow2" would belong to both vda and vdb',
  ],
  [
    'two names that fit',
    { 'web.snapshot': null, 'web.qcow2': null },
    { '1_web.xml': domain(disk('vda', '/x/web')) },
    '/x/web may be any of',
  ],
  [
    'several states whose layers part',
    { 'web.qcow2': null, 'a.snapshot': '/there/web.qcow2', 'b.snapshot': '/there/web.qcow2' },
    { ...ONE, '2_web.xml': domain(disk('vda', '/there/b.snapshot')) },
    'both say that they stand on "web.qcow2"',
  ],
  [
    'several states that end below their last layer',
    { 'web.qcow2': null, 'a.snapshot': '/there/web.qcow2' },
    { ...ONE, '2_web.xml': domain(disk('vda', '/there/web.qcow2')) },
    '"a.snapshot" stands on it',
  ],
  [
    'the file below the one that is named',
    { 'web.qcow2': null },
    {
      '1_web.xml': domain(
        disk('vda', '/there/web.s1').replace(
          '</disk>',
          "<backingStore type='file'><format type='qcow2'/><source file='/there/web.qcow2'/><backingStore/></backingStore></disk>",
        ),
      ),
    },
    'vda (/there/web.s1) consists of 2 files, and "web.qcow2" of 1',
  ],
  [
    'the layer below the only one is missing, by its name',
    { 'abc.qcow2': null, 'abc_b.snapshot': `/there/vm.vda.state-${UUID}.qcow2` },
    { '1_web.xml': domain(disk('vda', '/there/abc_b')) },
    'which is not in the archive',
  ],
  [
    'the layer below the only one is missing, by a saved state',
    { 'abc.qcow2': null, 'abc_b.snapshot': '/there/vm.a' },
    {
      '1_web.xml': domain(disk('vda', '/there/abc_b')),
      'a.xml': state('a', [
        ['vda', '/there/vm.a'],
        ['vdb', '/there/other.a'],
      ]),
    },
    'which is not in the archive',
  ],
  [
    'a layer that may stand on either of two',
    { 'abc.qcow2': null, 'abc_data.qcow2': null, 'abc_data_b.snapshot': '/there/vm.qcow2' },
    { '1_web.xml': domain(disk('vda', '/there/abc_data_b')) },
    'which is not in the archive',
  ],
  ['a network file below', { 'web.qcow2': 'nbd://10.0.0.1/x' }, ONE, 'which is no file'],
  ['a sparse member', { 'web.qcow2': null }, ONE, 'no plain file in the tar'],
  ['a link', { 'x.qcow2': null }, ONE, '"web.qcow2" is no plain file'],
])('%s is refused by its name', async (what, images, texts, reason) => {
  const tar = what === 'a sparse member' ? 'tar -S -cf' : 'tar -cf';
  const path = await pack(images, texts, { shell: SHELL[what] ?? 'true', tar });
  await expect(read(path)).rejects.toMatchObject({
    msgKey: expect.stringMatching(/^archive_(damaged|unsupported)$/),
    params: { reason: expect.stringContaining(reason) },
  });
});

test('a configuration that cannot be read is named', async () => {
  const path = await pack({ 'web.qcow2': null }, { '1_web.xml': '<domain><name>x</domain>' });
  await expect(read(path)).rejects.toMatchObject({ msgKey: 'xml_invalid' });
});

test('names that are not UTF-8, directories and devices are no hindrance', async () => {
  const shell = "mkdir empty; printf x > $'caf\\xe9.txt'; mkfifo pipe";
  const { manifest } = await read(await pack({ 'web.qcow2': null }, ONE, { shell }));
  expect(layersOf(manifest)).toEqual({ vda: ['web.qcow2'] });
});

test('a member that occurs twice is refused', async () => {
  const path = await pack({ 'web.qcow2': null }, ONE);
  await tool('tar', ['-C', dir.at(`home ${made}`), '-rf', path, './web.qcow2']);
  await expect(read(path)).rejects.toMatchObject({
    params: { reason: 'the member "web.qcow2" occurs twice' },
  });
});

describe('read by a glance', () => {
  let path: string;
  beforeAll(async () => {
    path = await pack({ 'web.qcow2': null }, ONE, { tar: 'tar --zstd -cf', ending: 'tar.zst' });
  });

  test('one stream of zstd is refused, and is not decompressed', async () => {
    await expect(openBackup(path, '', signal, 'none')).rejects.toMatchObject({
      msgKey: 'archive_unsupported',
      params: { reason: expect.stringContaining('one stream of zstd') },
    });
  });
});

describe('a saved state of two disks with memory', () => {
  const memory = "<memory snapshot='external' file='/m/s1.memory'/>";
  const packed = (backing: string, overlay: string) =>
    pack(
      {
        'a.qcow2': null,
        'a.s1.snapshot': '/there/a.qcow2',
        'a.s2.snapshot': '/there/a.s1',
        'b.qcow2': null,
        'b.s1.snapshot': '/there/b.qcow2',
        'b.s2.snapshot': backing,
      },
      {
        '1_web.xml': domain(`${disk('vda', '/there/a.s2')}${disk('vdb', '/there/b.s2')}`),
        's1.xml': state(
          's1',
          [
            ['vda', '/there/a.s1'],
            ['vdb', overlay],
          ],
          memory,
        ),
        's2.xml': state(
          's2',
          [
            ['vda', '/there/a.s2'],
            ['vdb', '/there/b.s2'],
          ],
          '',
          's1',
        ),
        's1.memory': 'of that instant',
      },
    );
  async function planned(path: string) {
    const backup = await openBackup(path, '', signal);
    try {
      const { states, warnings } = await readStates(backup, signal);
      const kept = states.map(({ record, frozen }) => [record.name, [...frozen.keys()].sort()]);
      return { kept, told: [...backup.unknown, ...warnings] };
    } finally {
      await backup.archive.close();
    }
  }
  const name = (file: string) =>
    JSON.stringify({ driver: 'qcow2', file: { driver: 'file', filename: file } });

  test.each([
    ['a path', '/there/b.s1'],
    ['a path as a URL', 'file:/there/b.s1'],
    ['JSON', `json:${name('/there/b.s1')}`],
    ['a name beside it', 'b.s1'],
  ])('comes back with both when the header tells what is below as %s', async (_what, backing) => {
    const { kept, told } = await planned(await packed(backing, '/there/b.s1'));
    expect(kept).toEqual([
      ['s1', ['vda', 'vdb']],
      ['s2', ['vda', 'vdb']],
    ]);
    expect(told.filter(text => text.includes('left out'))).toEqual([]);
  });

  test('is left out, and told of, when one of them is not known in it', async () => {
    const { kept, told } = await planned(await packed('/there/b.s1', '/elsewhere/b.first'));
    expect(kept).toEqual([['s2', ['vda', 'vdb']]]);
    expect(told).toContainEqual(expect.stringMatching(/"s1" is left out: .*vdb/));
  });
});
