import { spawnSync } from 'node:child_process';
import { expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { GiB } from '@virtkeep/shared/units';
import { parseDomain } from '../../domain-xml/index.ts';
import { containedCommand } from '../contained-program.ts';
import {
  outcomeOf,
  refuseDriversWithoutVirtio,
  requireVirtV2v,
  stepIn,
  v2vCommand,
  v2vDefinition,
} from './virt-v2v.ts';

const failed = (reason: string) => new VirtkeepError('driver_injection_failed', { vm: '"web"', reason });
const DRIVEN = 'virt-v2v-in-place: This guest has virtio drivers installed.\n';

test('a node without the tool is told by name, with its package', async () => {
  await expect(requireVirtV2v('/nowhere:/proc')).rejects.toMatchObject({
    msgKey: 'tool_missing',
    params: { program: 'virt-v2v-in-place', package: 'virt-v2v' },
  });
});

test('drivers are put in for virtio only', () => {
  for (const virtio of [true, false]) refuseDriversWithoutVirtio({ injectDrivers: false, virtio });
  refuseDriversWithoutVirtio({ injectDrivers: true, virtio: true });
  expect(() => refuseDriversWithoutVirtio({ injectDrivers: true, virtio: false })).toThrow(
    'The fields "inject_drivers" and "virtio: false" exclude each other.',
  );
});

test('it is given a definition of ours, the images by name and identity, and bounds', () => {
  const files = [
    { path: "/pool/it's $HOME.qcow2", id: '1:2', sizeBytes: 100 * GiB },
    { path: '/pool/b.qcow2', id: '1:3', sizeBytes: GiB },
  ];
  const argv = v2vCommand(files, true);
  const after = argv.slice(argv.indexOf('sh') + 1);
  const definition = v2vDefinition(2);
  expect(after.slice(2, 9)).toEqual([
    ...['sh', definition, "/pool/it's $HOME.qcow2", '1:2', '/pool/b.qcow2', '1:3', '--'],
  ]);
  expect(after.slice(9, 11)).toEqual(['env', '-i']);
  expect(argv).toEqual(
    expect.arrayContaining([
      'LIBGUESTFS_BACKEND=direct',
      'LIBGUESTFS_BACKEND_SETTINGS=force_tcg',
      '--core=0',
      `--fsize=${100 * GiB + 6.25 * GiB + 64 * 2 ** 20}`,
    ]),
  );
  expect(argv.slice(-6)).toEqual([
    ...['virt-v2v-in-place', '-i', 'libvirtxml', '--root', 'single', '/run/virtkeep-v2v/guest.xml'],
  ]);
  expect(v2vCommand(files, false).join(' ')).not.toContain('force_tcg');
});

test('nothing of it is looked at by a shell of the node, and it has no network', () => {
  const how = { name: 'v2v', hasOwnTmp: true, isOffline: true, timeoutMs: 60_000 };
  const { argv } = containedCommand(['x', '$HOME'], { ...how, isPrivileged: false });
  expect(argv).toEqual(expect.arrayContaining(['--property=PrivateNetwork=yes', '$$HOME']));
  expect(containedCommand(['x'], { ...how, isPrivileged: true }).argv).toContain('--net');
  expect(containedCommand(['x'], { ...how, isOffline: false, isPrivileged: true }).argv).not.toContain(
    '--net',
  );
});

test('the definition names the images and no more of the VM', () => {
  const xml = v2vDefinition(28);
  const { disks } = parseDomain(xml, 'guest');
  expect(disks.map(({ targetDev }) => targetDev).slice(24)).toEqual(['sdy', 'sdz', 'sdaa', 'sdab']);
  expect(disks[27]).toMatchObject({ path: '/run/virtkeep-v2v/27.qcow2' });
  // the bytes of a raw disk might be taken for anything
  expect(xml.match(/<driver name='qemu' type='qcow2'\/>/g)).toHaveLength(28);
});

test('the script is one that the shell reads', () => {
  const argv = v2vCommand([{ path: '/x', id: '1:2', sizeBytes: 1 }], false);
  const script = argv[argv.indexOf('-c') + 1]!;
  expect(spawnSync('sh', ['-n', '-c', script], { encoding: 'utf8' })).toMatchObject({
    status: 0,
    stderr: '',
  });
});

test('a guest for which it has no drivers is refused although it succeeds', () => {
  expect(outcomeOf(`[   1.0] Converting\n${DRIVEN}`, '', failed)).toEqual([]);
  const wrapped = 'virt-v2v-in-place: This guest does not have virtio drivers \ninstalled.\n';
  for (const said of ['', wrapped])
    expect(() => outcomeOf(said, '', failed)).toThrow(/"web": it has no drivers of virtio for this guest/);
});

test('its warnings are passed on, each on one line and without secrets', () => {
  const stderr = [
    'virt-v2v-in-place: warning: there is no virtio network driver for this version of ',
    'Windows (6.1 x86_64).  virt-v2v looks for it in /usr/share/virtio-win',
    '',
    'virt-v2v-in-place: warning: password=hunter2\u001b[31m',
    'virt-v2v-in-place: something else',
  ].join('\n');
  const [first, second, ...others] = outcomeOf(DRIVEN, stderr, failed);
  expect(first).toBe(
    'virt-v2v: there is no virtio network driver for this version of Windows (6.1 x86_64). virt-v2v looks for it in /usr/share/virtio-win',
  );
  expect(second).toContain('password=[redacted]');
  expect(others).toEqual([]);
});

test('what it does now is told by its last line with a time, once that has ended', () => {
  const opening = '[   0.0] Setting up the source: -i libvirtxml guest.xml\n';
  expect(stepIn(opening)).toBe('Setting up the source: -i libvirtxml guest.xml');
  expect(stepIn(`${opening}[   1.5] Opening`)).toBeUndefined();
  expect(stepIn(`${opening}[  12.25] Inspecting the [first] disk\nvirt-v2v: a word\n`)).toBe(
    'Inspecting the [first] disk',
  );
  expect(stepIn(`cut off [   3.0] Converting\n`)).toBe('Converting');
  expect(stepIn(`${opening}something [else]\n`)).toBeUndefined();
  for (const none of ['', '\n', 'Opening\n', '[', '[ 1.0]\n']) expect(stepIn(none)).toBeUndefined();
});

test('millions of beginnings of such lines are gone through once', () => {
  expect(stepIn('[0] '.repeat(1_000_000))).toBeUndefined();
  expect(stepIn(`${'[0] a\n'.repeat(1_000_000)}[0] b\n`)).toBe('b');
});
