import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { parseDomain, sanitizeForeign } from '../domain-xml/index.ts';
import { domainXmlOf } from '../ovf/index.ts';
import { TARGET } from '../ovf/test-kit.ts';
import { readGuestConfig } from './config.ts';
import { proxmoxVmOf } from './index.ts';

const GiB = 1024 ** 3;
const device = (name: string, sizeBytes = GiB) => ({ name, sizeBytes, isMemory: name === 'vmstate' });

const vmOf = (text: string, devices: string[] = []) =>
  proxmoxVmOf(
    {
      configs: [{ name: 'qemu-server.conf', bytes: Buffer.from(text) }],
      devices: devices.map(name => device(name)),
    },
    'a.vma',
  );
const told = (text: string, devices: string[] = []) =>
  vmOf(text, devices).appliance.warnings.map(
    ({ element, key, text: words }) => `${element} ${key}: ${words}`,
  );

const LINUX = `#Front end%3A see wiki
#second line
agent: 1
boot: order=virtio1;scsi0;ide2;net0
cores: 2
cpu: x86-64-v2-AES
ide2: local:iso/debian.iso,media=cdrom,size=631M
memory: 2048
meta: creation-qemu=8.1.5,ctime=1700000000
name: web
net0: virtio=BC:24:11:22:33:44,bridge=vmbr0,firewall=1,tag=12
net1: rtl8139=BC:24:11:22:33:45,bridge=vmbr1
numa: 0
ostype: l26
scsi0: local-lvm:vm-100-disk-0,iothread=1,size=8G
scsi3: local-lvm:vm-100-disk-3,backup=0,size=8G
scsihw: virtio-scsi-single
serial0: socket
smbios1: uuid=11111111-2222-3333-4444-555555555555
sockets: 2
unused0: local-lvm:vm-100-disk-9
vga: serial0
virtio1: local-lvm:vm-100-disk-1,size=1G
vmgenid: 66666666-7777-8888-9999-000000000000
#qmdump#map:scsi0:drive-scsi0:local-lvm:raw:
#qmdump#map:virtio1:drive-virtio1:local-lvm:raw:

[before]
cores: 64
name: never
`;
const WINDOWS = `agent: 1
args: -device evil
audio0: device=ich9-intel-hda,driver=spice
bios: ovmf
boot: order=sata0
cores: 4
efidisk0: local-lvm:vm-1-disk-0,efitype=4m,pre-enrolled-keys=1,size=528K
hookscript: local:snippets/x.pl
hostpci0: 0000:01:00,pcie=1
machine: pc-q35-8.1
memory: 8192
name: win
net0: e1000=BC:24:11:22:33:46,bridge=vmbr0
ostype: win11
sata0: local-lvm:vm-1-disk-1,size=64G
tpmstate0: local-lvm:vm-1-disk-2,size=4M,version=v2.0
usb0: host=1234:5678
#qmdump#map:efidisk0:drive-efidisk0:local-lvm:raw:
#qmdump#map:sata0:drive-sata0:local-lvm:raw:
#qmdump#map:tpmstate0:drive-tpmstate0-backup:local-lvm:raw:
`;
const OLD = `bootdisk: ide0
ide0: local:100/vm-100-disk-1.raw,format=raw
ide2: none,media=cdrom
memory: 512
name: old
net0: ne2k_pci=00:11:22:33:44:55,bridge=vmbr0
ostype: wxp
scsi0: local:100/vm-100-disk-2.raw
`;

const CASES: Record<string, [string, string[]]> = {
  linux: [LINUX, ['drive-scsi0', 'drive-virtio1']],
  windows: [WINDOWS, ['drive-efidisk0', 'drive-sata0', 'drive-tpmstate0-backup']],
  old: [OLD, ['drive-ide0', 'drive-scsi0', 'vmstate']],
};

function complaintsOf(xml: string): string {
  const run = spawnSync('virt-xml-validate', ['-', 'domain'], { input: xml, encoding: 'utf8' });
  return run.status === 0 ? '' : `${run.error ?? ''}${run.stderr}`;
}

describe.each(Object.entries(CASES))('%s', (file, [text, devices]) => {
  const { appliance } = vmOf(text, devices);
  const { xml, warnings } = domainXmlOf(appliance, TARGET);

  test('is what it was, with its warnings', () => {
    const path = join(import.meta.dirname, 'golden', `${file}.xml`);
    const lines = warnings.map(({ element, key, text: words }) => `${element} ${key}: ${words}`);
    const golden = `${xml}<!--\n${lines.join('\n').replaceAll('--', '- -')}\n-->\n`;
    if (process.env.VIRTKEEP_OVF_GOLDEN === 'write') writeFileSync(path, golden);
    expect(golden).toBe(readFileSync(path, 'utf8'));
  });

  test("is a domain by libvirt's schema", () => expect(complaintsOf(xml)).toBe(''));

  test('has what a restore takes of a foreign domain, and nothing besides', () => {
    const fileAt = (_path: string, use: string) => ({
      format: use === 'disk' ? ('qcow2' as const) : ('raw' as const),
    });
    expect(sanitizeForeign(xml, { strict: true, fileAt, devices: null }).leftOut).toEqual([]);
  });
});

test('disks are those that the archive has, the one that is booted from first', () => {
  const { appliance, devices } = vmOf(LINUX, ['drive-scsi0', 'drive-virtio1']);
  expect(devices).toEqual(['drive-virtio1', 'drive-scsi0']);
  expect(appliance).toMatchObject({
    cpus: 4,
    coresPerSocket: 2,
    memoryMiB: 2048,
    name: 'web',
    serialPorts: 1,
  });
  expect(appliance.description).toBe('Front end: see wiki\nsecond line');
  expect(parseDomain(domainXmlOf(appliance, TARGET).xml).disks.map(({ targetDev }) => targetDev)).toEqual([
    'vda',
    'sda',
    'hdc',
  ]);
});

test('the disk that is booted from is told by itself where libvirt would take another one, of an earlier name', () => {
  const config = 'boot: order=ide1;ide0\nide0: a:b\nide1: c:d\nide2: none,media=cdrom\n';
  const { xml } = domainXmlOf(vmOf(config, ['drive-ide0', 'drive-ide1']).appliance, TARGET);
  expect(complaintsOf(xml)).toBe('');
  expect(xml).not.toMatch(/<boot dev/);
  expect(xml.match(/<boot /g)).toHaveLength(2);
  expect(xml).toMatch(/<target dev='hdb' [^>]*>\s*<address [^>]*>\s*<boot order='1'\/>/);
  expect(xml).toMatch(/<target dev='hdc' [^>]*>\s*<readonly\/>\s*<address [^>]*>\s*<boot order='2'\/>/);
});

test.each([
  ['cloudinit-store:vm-100-disk-0', 'disk'],
  ['local:100/my-cloudinit-template.qcow2', 'disk'],
  ['local-lvm:vm-100-cloudinit', 'drive'],
  ['local:100/vm-100-cloudinit.qcow2', 'drive'],
  ['local:cloudinit', 'drive'],
])('%s is a %s: it is one for cloud-init by its own name alone', (volume, kind) => {
  const { appliance } = vmOf(`scsi0: ${volume},size=4M\n`, ['drive-scsi0']);
  expect([appliance.disks.length, appliance.drives.length]).toEqual(kind === 'disk' ? [1, 0] : [0, 1]);
});

test('what is not told by the configuration is told by the names of the data', () => {
  expect(vmOf('scsi0: a:b\nide1: c:d\n', ['drive-ide1', 'drive-scsi0']).devices).toEqual([
    'drive-scsi0',
    'drive-ide1',
  ]);
});

describe('each of these is told', () => {
  test.each([
    [
      'scsi0: a:b',
      [],
      'scsi0 not_attached: The archive does not have the data of "a:b": the disk is left out.',
    ],
    [
      'name: x',
      ['drive-scsi7'],
      'scsi7 ignored: The configuration has no disk for the data of "drive-scsi7".',
    ],
    [
      'name: x',
      ['vmstate'],
      'vmstate ignored: The memory that was saved with it is left out: the VM starts anew.',
    ],
    ['cores: -3', [], 'cores assumed: "-3" is no number of CPUs: 1 is taken.'],
    ['cores: 200\nsockets: 2', [], 'cores assumed: Of 400 CPUs it has 255.'],
    ['memory: much', [], 'memory assumed: Its memory cannot be told: it has 512 MiB.'],
    ['bios: coreboot', [], 'bios assumed: The firmware "coreboot" is not known: it is BIOS.'],
    [
      'bios: ovmf\nefidisk0: a:b,pre-enrolled-keys=1',
      [],
      'efidisk0 replaced: Secure boot is off: the machine pc has none here.',
    ],
    [
      'machine: pc-i440fx-6.0',
      [],
      'machine replaced: "pc-i440fx-6.0" becomes the newest pc of the node, without options.',
    ],
    ['net0: ne2k_pci=00:11:22:33:44:55,bridge=x', [], 'net0 replaced: The model "ne2k_pci" becomes e1000.'],
    ['net0: virtio=zz,bridge=x', [], 'net0 replaced: The MAC address "zz" is none: it gets a new one.'],
    ['net0: virtio,bridge=x,tag=3', [], 'net0 ignored: Settings of its network are left out: "tag".'],
    [
      'scsihw: megasas\nscsi0: a:b',
      [],
      'scsihw replaced: The controller "megasas" becomes lsisas1068, for which the guest needs a driver.',
    ],
    ['boot: order=net0', [], 'boot replaced: It boots from its disks, then from CD-ROM, not from a network.'],
    [
      'ide2: x:iso/a.iso,media=cdrom',
      [],
      'ide2 not_attached: The drive is empty: "x:iso/a.iso" belongs to the other host.',
    ],
    ['args: -S', [], 'args ignored: Arguments of QEMU are not taken from a file.'],
    ['parallel0: /dev/parport0', [], 'parallel0 ignored: Devices of the other host are not passed through.'],
    ['balloon: 100', [], 'qemu-server.conf ignored: Settings of Proxmox VE have no counterpart: "balloon".'],
    ['???', [], 'qemu-server.conf ignored: 1 of its lines are none of a configuration.'],
    ['template: 1', [], 'template ignored: It becomes a VM.'],
  ])('%s', (text, devices, warning) => {
    expect(told(text, devices)).toContain(warning);
  });
});

describe('as a whole is refused', () => {
  const bad = (reason: RegExp) =>
    expect.objectContaining({ msgKey: 'appliance_invalid', message: expect.stringMatching(reason) });
  const failure = (work: () => unknown): unknown => {
    try {
      return work();
    } catch (error) {
      return error;
    }
  };
  test('an archive of a container', () =>
    expect(failure(() => proxmoxVmOf({ configs: [], devices: [] }, 'a.vma'))).toEqual(
      bad(/no qemu-server\.conf/),
    ));
  test('another architecture', () => expect(failure(() => vmOf('arch: aarch64'))).toEqual(bad(/aarch64/)));
  test('no text', () =>
    expect(
      failure(() =>
        proxmoxVmOf(
          { configs: [{ name: 'qemu-server.conf', bytes: Buffer.from([0xff, 0xfe]) }], devices: [] },
          'a',
        ),
      ),
    ).toEqual(bad(/UTF-8/)));
  test('too many lines', () => expect(failure(() => vmOf('\n'.repeat(20_000)))).toEqual(bad(/20001 lines/)));
});

test('a line is a key and a value between blanks, or none', () => {
  const read = (text: string) => readGuestConfig(Buffer.from(text), 'a.vma');
  const { values, unread } = read(
    'name:\t web one \n  Memory:64\nempty:\nlong: \r \u2028x\nbad: a\rb\nno key\n',
  );
  expect([...values]).toEqual([
    ['name', 'web one'],
    ['memory', '64'],
    ['empty', ''],
    ['long', 'x'],
  ]);
  expect(unread).toBe(2);
});

test('a line of half a million blanks is none, at once', () => {
  const { values, unread } = readGuestConfig(Buffer.from(`name: a\nx:${' '.repeat(520_000)}a\rb`), 'a.vma');
  expect([...values]).toEqual([['name', 'a']]);
  expect(unread).toBe(1);
});

test('whatever stands in it, there is a domain or a refusal, and nothing of the host', () => {
  const seed = Number(process.env.VIRTKEEP_VMA_SEED ?? Date.now() % 1_000_000);
  const words = [
    '/etc/shadow',
    '=',
    ',',
    ';',
    ':',
    '\n',
    '-1',
    '999999999',
    'none',
    '&<>\'"',
    '\u0001',
    'é',
    '[x]',
    '#',
  ];
  for (let time = 0; time < 1_000; time++) {
    const random = seededRandom(seed + time);
    let text = Object.values(CASES)[random(3)]![0];
    for (let count = 1 + random(8); count > 0; count--) {
      const at = random(text.length);
      const word =
        random(2) === 0 ? words[random(words.length)]! : text.slice(random(text.length)).slice(0, random(40));
      text = text.slice(0, at) + word + text.slice(at + random(6));
    }
    try {
      const { appliance } = vmOf(text, ['drive-scsi0', 'drive-virtio1', 'drive-sata0', 'drive-ide0']);
      const { xml } = domainXmlOf(appliance, TARGET);
      const { disks } = parseDomain(xml);
      expect(disks.filter(({ source }) => source !== '' && !source.startsWith('/pool/'))).toEqual([]);
      expect(new Set(disks.map(({ targetDev }) => targetDev)).size).toBe(disks.length);
    } catch (error) {
      if ((error as { msgKey?: string }).msgKey !== 'appliance_invalid')
        throw new Error(`VIRTKEEP_VMA_SEED=${seed + time}`, { cause: error });
    }
  }
});
