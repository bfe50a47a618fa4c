import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { parseDomain, sanitizeForeign } from '../domain-xml/index.ts';
import { applianceOf, type DomainTarget, domainXmlOf } from './index.ts';
import {
  cpus,
  DESCRIPTORS,
  descriptor,
  disk,
  ide,
  item,
  memory,
  only,
  read,
  sata,
  scsi,
  TARGET,
} from './test-kit.ts';

const make = (name: string, target: Partial<DomainTarget> = {}, system?: string) =>
  domainXmlOf(applianceOf(read(DESCRIPTORS[name]!), system === undefined ? {} : { system }), {
    ...TARGET,
    ...target,
  });

/** What libvirt's own tool says of it; empty: nothing. */
function complaintsOf(xml: string): string {
  const { status, stderr, error } = spawnSync('virt-xml-validate', ['-', 'domain'], {
    input: xml,
    encoding: 'utf8',
  });
  return status === 0 ? '' : `${error ?? ''}${stderr}`;
}

const CASES: [string, string, Partial<DomainTarget>, string?][] = [
  ['vmware-bios-lsilogic', 'vmware-bios-lsilogic', {}],
  ['vmware-bios-lsilogic-without-disks', 'vmware-bios-lsilogic', { withDisks: false, nicMac: 'new' }],
  ['vmware-secure-windows', 'vmware-secure-windows', { uuid: '11111111-2222-4333-8444-555555555555' }],
  [
    'vmware-secure-windows-virtio',
    'vmware-secure-windows',
    { virtio: true, name: 'other', domainType: 'qemu' },
  ],
  ['vmware-many-disks', 'vmware-many-disks', {}],
  ['virtualbox-efi', 'virtualbox-efi', {}],
  ['cluster-of-two', 'cluster-of-two', {}, 'b'],
  ['sizes-to-choose', 'sizes-to-choose', {}],
  ['no-default-namespace', 'no-default-namespace', {}],
];

describe.each(CASES)('%s', (file, name, target, system) => {
  const { xml, disks } = make(name, target, system);

  test('is what it was', () => {
    const path = join(import.meta.dirname, 'golden', `${file}.xml`);
    if (process.env.VIRTKEEP_OVF_GOLDEN === 'write') writeFileSync(path, xml);
    expect(xml).toBe(readFileSync(path, 'utf8'));
  });

  test("is a domain by libvirt's schema", () => expect(complaintsOf(xml)).toBe(''));

  test('has what a restore takes of a foreign domain, and nothing besides', () => {
    const fileAt = (_path: string, use: string) => ({
      format: use === 'disk' ? ('qcow2' as const) : ('raw' as const),
    });
    expect(sanitizeForeign(xml, { strict: true, fileAt, devices: null }).leftOut).toEqual([]);
  });

  test('has its disks, each under a target of its own', () => {
    const all = parseDomain(xml).disks;
    expect(new Set(all.map(({ targetDev }) => targetDev)).size).toBe(all.length);
    const files = all.filter(({ device }) => device === 'disk');
    expect(files.map(({ targetDev, path }) => [targetDev, path])).toEqual(
      disks.map(({ targetDev, path }) => [targetDev, path]),
    );
  });
});

test('a place that two would have is given once', () => {
  const { xml } = make('vmware-many-disks');
  const addresses = [...xml.matchAll(/<target dev='\w+' bus='(\w+)'\/>\s*<address (.*)\/>/g)].map(
    ([, bus, at]) => `${bus} ${at}`,
  );
  expect(addresses).toHaveLength(12);
  expect(new Set(addresses).size).toBe(12);
});

const key = (name: string, target: Partial<DomainTarget> = {}) =>
  make(name, target).warnings.map(warning => `${warning.element}: ${warning.key}`);

describe('warnings', () => {
  test('without disks each that is not attached is named, and drives are empty', () => {
    const { xml, disks, warnings } = make('virtualbox-efi', { withDisks: false });
    expect(disks).toEqual([]);
    expect(parseDomain(xml).disks).toMatchObject([{ device: 'cdrom' }]);
    expect(xml).not.toContain('<source file');
    expect(warnings.filter(warning => warning.key === 'not_attached')).toMatchObject([
      { element: 'Disk "d1"' },
      { element: 'File "f2"' },
    ]);
  });

  test('virtio needs drivers, of which Linux has its own', () => {
    const drivers = 'VirtualHardwareSection: guest_must_support';
    expect(key('vmware-secure-windows', { virtio: true })).toContain(drivers);
    expect(key('vmware-secure-windows')).not.toContain(drivers);
    expect(key('vmware-secure-windows', { virtio: true, hasDrivers: true })).not.toContain(drivers);
    expect(key('vmware-bios-lsilogic', { virtio: true })).not.toContain(drivers);
  });

  test('a new TPM, and networks that are not mapped', () => {
    expect(key('vmware-secure-windows')).toContain('TPM: replaced');
    expect(key('virtualbox-efi')).toContain('Network "NAT": replaced');
    expect(key('vmware-bios-lsilogic')).not.toContain('Network "LAN": replaced');
  });

  test('those of the appliance come first, and a network named like a property of all objects is none', () => {
    const appliance = only({ items: cpus(1) + memory(512) + item(10, { Connection: '__proto__' }) });
    const { warnings } = domainXmlOf(appliance, TARGET);
    expect(warnings.slice(0, appliance.warnings.length)).toEqual(appliance.warnings);
    expect(warnings.at(-1)?.element).toBe('Network "__proto__"');
  });
});

describe('names', () => {
  test.each([
    ['web', 'web'],
    ['a/b', 'a_b'],
    ['..', 'vm1'],
    ['a&#10;b', 'a b'],
    ["it's &lt;&amp;&gt;", "it's <&>"],
    ['я'.repeat(150), 'я'.repeat(100)],
    ['', 'vm1'],
    [`${'a'.repeat(199)}😀`, 'a'.repeat(199)],
    [`a${'😀'.repeat(100)}`, `a${'😀'.repeat(49)}`],
    [`${'a'.repeat(190)}${' '.repeat(50)}b`, 'a'.repeat(190)],
  ])('%s', (name, expected) => {
    const { xml } = domainXmlOf(only({ name }), TARGET);
    expect(parseDomain(xml).name).toBe(expected);
    expect(complaintsOf(xml)).toBe('');
  });
});

test('a name of millions of characters is cut at once', () => {
  const { xml } = domainXmlOf({ ...only({}), name: 'я'.repeat(3_000_000) }, TARGET);
  expect(parseDomain(xml).name).toBe('я'.repeat(100));
});

test('more on IDE than it has place for goes to SATA, on q35 everything does', () => {
  const drives = [5, 6, 7, 8, 9]
    .map(id => item(15, { InstanceID: id, Parent: 3, AddressOnParent: 0 }))
    .join('');
  const items = cpus(1) + memory(512) + ide(3) + disk(4, 3, 0) + drives;
  const buses = (settings = '') =>
    parseDomain(domainXmlOf(only({ items, settings }), TARGET).xml).disks.map(
      ({ targetDev, bus }) => `${targetDev} ${bus}`,
    );
  expect(buses()).toEqual(['hda ide', 'hdb ide', 'hdc ide', 'hdd ide', 'sda sata', 'sdb sata']);
  expect(
    new Set(buses('<vmw:Config vmw:key="firmware" vmw:value="efi"/>').map(text => text.slice(4))),
  ).toEqual(new Set(['sata']));
});

test('a disk with a fault is left out', () => {
  const text = descriptor({ files: '', content: '' }).replace(
    '</Envelope>',
    `<VirtualSystem ovf:id="x"><VirtualHardwareSection>${sata(3)}${disk(4, 3, 0)}${scsi(5, 'lsilogic')}</VirtualHardwareSection></VirtualSystem></Envelope>`,
  );
  expect(domainXmlOf(applianceOf(read(text)), TARGET).disks).toEqual([]);
});

test('the same twice is the same', () => {
  expect(make('vmware-many-disks')).toEqual(make('vmware-many-disks'));
});
