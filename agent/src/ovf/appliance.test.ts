import { describe, expect, test } from '@jest/globals';
import { GiB } from '@virtkeep/shared/units';
import { requireUsableDisks } from './index.ts';
import {
  cpus, DISK, disk, EFI, FILE, ide, item, memory, nic, only, SECURE_BOOT, type SystemParts,sata, scsi, 
} from './test-kit.ts'; // biome-ignore format: names

const BASE = cpus(2) + memory(2048);
const of = (items: string, rest: SystemParts = {}) => only({ items: BASE + items, ...rest });
const texts = ({ warnings }: ReturnType<typeof only>) =>
  warnings.map(({ element, text }) => `${element}: ${text}`);

describe('operating systems', () => {
  test.each([
    ['ovf:id="1" vmw:osType="windows9_64Guest"', 'Windows', 'http://microsoft.com/win/10'],
    ['vmw:osType="windows9Server64Guest"', 'Windows', 'http://microsoft.com/win/2k16'],
    ['vmw:osType="windows2019srv_64Guest"', 'Windows', 'http://microsoft.com/win/2k19'],
    ['vmw:osType="windows2019srvNext_64Guest"', 'Windows', 'http://microsoft.com/win/2k22'],
    ['vmw:osType="windows11_64Guest"', 'Windows', 'http://microsoft.com/win/11'],
    ['vmw:osType="windows7Server64Guest"', 'Windows', 'http://microsoft.com/win/2k8r2'],
    ['vmw:osType="windows8Server64Guest"', 'Windows', 'http://microsoft.com/win/2k12'],
    ['vmw:osType="winNetEnterpriseGuest"', 'Windows', 'http://microsoft.com/win/2k3'],
    ['vmw:osType="rhel9_64Guest"', 'Linux', 'http://redhat.com/rhel/9-unknown'],
    ['vmw:osType="centos7_64Guest"', 'Linux', 'http://centos.org/centos/7.0'],
    ['vmw:osType="debian12_64Guest"', 'Linux', 'http://debian.org/debian/12'],
    ['vmw:osType="debian6Guest"', 'Linux', 'http://debian.org/debian/6'],
    ['vmw:osType="sles15_64Guest"', 'Linux', 'http://suse.com/sles/15'],
    ['vmw:osType="ubuntu64Guest"', 'Linux', 'http://libosinfo.org/linux/2022'],
    ['vmw:osType="other6xLinux64Guest"', 'Linux', 'http://libosinfo.org/linux/2022'],
    ['vmw:osType="freebsd13_64Guest"', 'Other', ''],
    ['ovf:id="36" vmw:osType="otherGuest"', 'Linux', 'http://libosinfo.org/linux/2022'],
    ['ovf:id="123"', 'Windows', 'http://microsoft.com/win/2k22'],
    ['ovf:id="119"', 'Windows', 'http://microsoft.com/win/10'],
    ['ovf:id="80"', 'Linux', 'http://redhat.com/rhel/8-unknown'],
    ['ovf:id="96"', 'Linux', 'http://debian.org/debian/12'],
    ['ovf:id="-100"', 'Other', ''],
    ['', 'Other', ''],
  ])('%s', (os, type, id) => {
    expect(only({ os }).os).toMatchObject({ type, id });
  });

  test("VirtualBox's name", () => {
    const os =
      'ovf:id="1"><vbox:OSType ovf:required="false">Windows2016_64</vbox:OSType></OperatingSystemSection><X';
    expect(only({ os: os.replace('<X', '<OperatingSystemSection') }).os.id).toBe(
      'http://microsoft.com/win/2k16',
    );
  });
});

describe('CPUs and memory', () => {
  const sizes = (items: string) => {
    const { cpus: count, coresPerSocket, memoryMiB, warnings } = only({ items });
    return [count, coresPerSocket, memoryMiB, warnings.length - 1];
  };
  const cores = (count: number) => ({ more: `<vmw:CoresPerSocket>${count}</vmw:CoresPerSocket>` });

  test.each([
    ['as they stand', cpus(8, {}, cores(4)) + memory(2048), [8, 4, 2048, 0]],
    ['sockets that do not divide', cpus(6, {}, cores(4)) + memory(2048), [6, null, 2048, 1]],
    ['none told', '', [1, null, 1024, 2]],
    ['absurd ones', cpus(100_000) + memory('99999999', 'TB'), [255, null, 1024, 2]],
    ['zero', cpus(0) + memory(0), [1, null, 1024, 2]],
    ['no unit', cpus(1) + item(4, { InstanceID: 2, VirtualQuantity: 512 }), [1, null, 512, 0]],
    ['in GB', cpus(1) + memory(2, 'GB'), [1, null, 2048, 0]],
    ['in bytes', cpus(1) + memory(1_073_741_825, 'byte'), [1, null, 1025, 0]],
    ['an unknown unit', cpus(1) + memory(512, 'pages'), [1, null, 512, 1]],
    ['very little', cpus(1) + memory(16), [1, null, 16, 1]],
    ['twice', cpus(1) + cpus(2, { InstanceID: 9 }) + memory(512), [1, null, 512, 1]],
  ])('%s', (_name, items, expected) => expect(sizes(items)).toEqual(expected));
});

describe('firmware', () => {
  test.each([
    ['', { efi: false, secureBoot: false }],
    [EFI, { efi: true, secureBoot: false }],
    [EFI + SECURE_BOOT, { efi: true, secureBoot: true }],
    [SECURE_BOOT, { efi: false, secureBoot: false }],
    ['<vmw:ExtraConfig vmw:key="firmware" vmw:value="EFI"/>', { efi: true, secureBoot: false }],
    ['<vmw:Config vmw:key="firmware" vmw:value="@@FIRMWARE@@"/>', { efi: false, secureBoot: false }],
  ])('%s', (settings, firmware) => expect(only({ settings }).firmware).toEqual(firmware));

  test('variables of VMware are dropped, and what has no counterpart is told once', () => {
    const settings = `<vmw:ExtraConfig vmw:key="nvram" vmw:value="ovf:/file/f2"/><vmw:Config vmw:key="tools.afterResume" vmw:value="true"/>`;
    expect(texts(only({ settings })).slice(1)).toEqual([
      'ExtraConfig "nvram": The variables of its firmware are not those of the firmware here: they are made anew, and boot entries are lost.',
      'VirtualHardwareSection: Settings of the other hypervisor have no counterpart: "tools.afterresume".',
    ]);
  });

  test("VirtualBox's own settings tell EFI and TPM", () => {
    const sections =
      '<vbox:Machine><Hardware><Firmware type="EFI"/><TrustedPlatformModule type="v2_0"/></Hardware></vbox:Machine>';
    expect(only({ sections })).toMatchObject({ firmware: { efi: true }, tpm: true });
  });
});

describe('controllers', () => {
  test.each([
    [scsi(3, 'lsilogic'), { bus: 'scsi', model: 'lsilogic' }, 0],
    [scsi(3, 'lsilogicsas'), { bus: 'scsi', model: 'lsisas1068' }, 0],
    [scsi(3, 'VirtualSCSI'), { bus: 'scsi', model: 'vmpvscsi' }, 0],
    [scsi(3, 'buslogic'), { bus: 'scsi', model: 'lsilogic' }, 1],
    [scsi(3, 'virtio lsilogic'), { bus: 'scsi', model: 'virtio-scsi' }, 0],
    [scsi(3, 'someother, LSILOGIC'), { bus: 'scsi', model: 'lsilogic' }, 0],
    [scsi(3, 'unheard'), { bus: 'scsi', model: 'lsilogic' }, 1],
    [scsi(3, 'constructor'), { bus: 'scsi', model: 'lsilogic' }, 1],
    [item(6, { InstanceID: 3 }), { bus: 'scsi', model: 'lsilogic' }, 0],
    [sata(3), { bus: 'sata', model: null }, 0],
    [sata(3, 'AHCI'), { bus: 'sata', model: null }, 0],
    [sata(3, 'LsiLogicSas'), { bus: 'scsi', model: 'lsisas1068' }, 0],
    [sata(3, 'VirtioSCSI'), { bus: 'scsi', model: 'virtio-scsi' }, 0],
    [sata(3, 'vmware.nvme.controller'), { bus: 'virtio', model: null }, 1],
    [
      item(5, { InstanceID: 3, ResourceSubType: 'PIIX4', Address: 1 }),
      { bus: 'ide', index: 1, model: null },
      0,
    ],
  ])('%s', (items, controller, count) => {
    const { controllers, disks, warnings } = of(items + disk(4, 3, 0));
    expect(controllers).toMatchObject([controller]);
    expect(disks).toMatchObject([{ bus: controller.bus, controller: 0, unit: 0 }]);
    expect(warnings).toHaveLength(count);
  });

  test('an InstanceID that stands twice is told', () => {
    const { disks, warnings } = of(scsi(3, 'lsilogic') + sata(3) + disk(3, 3, 0));
    expect(disks).toMatchObject([{ bus: 'scsi', controller: 0 }]);
    expect(warnings.map(({ key }) => key)).toEqual(['contradiction', 'contradiction']);
  });
});

describe('disks', () => {
  const ON = scsi(3, 'lsilogic');
  const one = (disks: string, files = FILE, items = ON + disk(4, 3, 0)) =>
    only({ items: BASE + items }, { disks, files });
  const attributes = (text: string) => `<Disk ovf:diskId="d1" ${text}/>`;

  test('of a file', () => {
    expect(one(DISK).disks).toEqual([
      {
        diskId: 'd1',
        file: expect.objectContaining({ paths: ['web-disk1.vmdk'], sizeBytes: 4096 }),
        fault: null,
        capacityBytes: 8 * GiB,
        populatedSizeBytes: null,
        format: 'vmdk',
        bus: 'scsi',
        controller: 0,
        unit: 0,
      },
    ]);
  });

  test('empty', () => {
    const { disks, warnings } = one(attributes('ovf:capacity="8" ovf:capacityAllocationUnits="GB"'));
    expect(disks).toMatchObject([{ file: null, fault: null, capacityBytes: 8 * GiB }]);
    expect(warnings).toEqual([]);
  });

  test.each([
    ['a file that is not declared', attributes('ovf:fileRef="f9"'), 'no file "f9"'],
    ['only changes', attributes('ovf:fileRef="f1" ovf:parentRef="d0"'), 'only the changes to the disk "d0"'],
    ['empty and without capacity', attributes(''), 'its capacity cannot be told'],
    [
      'empty and of a property that nobody sets',
      attributes('ovf:capacity="$' + '{x}"'),
      'its capacity cannot be told',
    ],
    ['not declared', '', 'no disk "d1"'],
  ])('%s: a fault', (_name, disks, fault) => {
    const appliance = one(disks);
    expect(appliance.disks[0]?.fault).toContain(fault);
    expect(texts(appliance).at(-1)).toContain(fault);
    expect(() => requireUsableDisks(appliance)).toThrow(
      `The disk "d1" of the VM "web" cannot be brought along: `,
    );
  });

  test('a file that lies outside of the package', () => {
    const appliance = one(DISK, FILE.replace('web-', '../web-'));
    expect(appliance.disks).toMatchObject([
      { file: null, fault: expect.stringContaining('it leads out of the package') },
    ]);
    expect(() => requireUsableDisks(appliance)).toThrow('"../web-disk1.vmdk" cannot be used');
  });

  test('a capacity that cannot be read is no fault beside a file', () => {
    const appliance = one(attributes('ovf:fileRef="f1" ovf:capacity="@@SIZE@@"'));
    expect(appliance.disks).toMatchObject([{ fault: null, capacityBytes: null }]);
    expect(texts(appliance)).toEqual([
      'Item "4": Its capacity "@@SIZE@@ byte" is not read: that of the image counts.',
    ]);
    requireUsableDisks(appliance);
  });

  test('a capacity by a property', () => {
    const disks = attributes('ovf:capacity="$' + '{size}" ovf:capacityAllocationUnits="byte * 2^30"');
    const sections = '<ProductSection><Property ovf:key="size" ovf:value="5"/></ProductSection>';
    const appliance = only({ items: BASE + ON + disk(4, 3, 0), sections }, { disks });
    expect(appliance.disks).toMatchObject([{ capacityBytes: 5 * GiB, fault: null }]);
    expect(texts(appliance)).toContain(
      'Disk "d1": Its capacity is the property "size", whose default "5" is taken.',
    );
  });

  test('attached twice: once', () => {
    const appliance = one(DISK, FILE, ON + disk(4, 3, 0) + disk(5, 3, 1));
    expect(appliance.disks).toHaveLength(1);
    expect(texts(appliance)).toEqual([
      'Item "5": The disk "d1" is attached already; it is not attached twice.',
    ]);
  });

  test.each([['ovf:/disk/d1'], ['/disk/d1'], ['ovf://disk/d1'], ['OVF:/Disk/d1'], ['ovf:/file/f1']])(
    '%s',
    host => {
      expect(one(DISK, FILE, ON + disk(4, 3, 0, host)).disks).toMatchObject([
        { fault: null, file: { id: 'f1' } },
      ]);
    },
  );

  test.each(['', '[datastore] web.vmdk', 'ovf:/disk/', '/dev/sda'])('%s names no disk', host => {
    expect(one(DISK, FILE, ON + disk(4, 3, 0, host)).disks[0]?.fault).toContain('names no disk');
  });

  test('without Parent it goes to the first controller', () => {
    const appliance = one(DISK, FILE, sata(3) + item(17, { InstanceID: 4, HostResource: 'ovf:/disk/d1' }));
    expect(appliance.disks).toMatchObject([{ bus: 'sata', controller: 0, unit: null }]);
    expect(appliance.warnings).toMatchObject([{ element: 'Item "4"', key: 'contradiction' }]);
  });

  test.each([
    ['http://www.gnome.org/~markmc/qcow-image-format.html', 'x', 'qcow2'],
    ['http://go.microsoft.com/fwlink/?LinkId=137171', 'x', 'vpc'],
    ['', 'disk.vhdx', 'vhdx'],
    ['', 'disk.VMDK.gz', 'vmdk'],
    ['urn:unheard', 'disk.img', null],
    ['urn:example:raw', 'disk.img', 'raw'],
    ['', 'disk.bin', null],
  ])('the format by %s, %s', (uri, href, format) => {
    const { disks } = one(
      attributes(`ovf:fileRef="f1" ovf:format="${uri}"`),
      FILE.replace('web-disk1.vmdk', href),
    );
    expect(disks).toMatchObject([{ format }]);
  });
});

test('a refusal is one line, whatever the descriptor is named inside', () => {
  const items = `${BASE}${sata(3)}${disk(4, 3, 0, `ovf:/disk/x&#x202e;${'y'.repeat(500)}`)}`;
  const appliance = only({ items, name: 'a&#10;b' });
  expect(() => requireUsableDisks(appliance)).toThrow(
    `The disk "x ${'y'.repeat(118)}" of the VM "a b" cannot be brought along: `,
  );
});

describe('drives', () => {
  test.each([
    ['/file/f1', 'f1', 0],
    ['ovf:/disk/d1', 'f1', 0],
    ['/dev/sr0', undefined, 1],
    ['ovf:/file/f9', undefined, 1],
  ])('%s', (HostResource, id, count) => {
    const { drives, warnings } = of(
      ide(3, 1) + disk(9, 3, 1) + item(15, { InstanceID: 4, Parent: 3, HostResource }),
    );
    expect(drives).toMatchObject([{ device: 'cdrom', bus: 'ide', controller: 0 }]);
    expect(drives[0]?.file?.id).toBe(id);
    expect(warnings).toHaveLength(count);
  });
});

describe('network adapters', () => {
  test.each([
    ['E1000', 'e1000', 0],
    ['E1000e', 'e1000e', 0],
    ['VmxNet3', 'vmxnet3', 0],
    ['VMXNET3', 'vmxnet3', 0],
    ['PCNet32', 'pcnet', 0],
    ['virtio', 'virtio', 0],
    ['VmxNet2', 'e1000', 1],
  ])('%s', (name, model, count) => {
    const { nics, warnings } = of(disk(9, 3, 0) + sata(3) + nic(4, name));
    expect(nics).toEqual([{ model, mac: null, network: 'LAN' }]);
    expect(warnings).toHaveLength(count);
  });

  test.each([
    ['00:50:56:AA:bb:CC', '00:50:56:aa:bb:cc'],
    ['00-50-56-AA-BB-CC', '00:50:56:aa:bb:cc'],
    ['080027A1B2C3', '08:00:27:a1:b2:c3'],
    ['01:00:5e:00:00:01', null],
    ['00:00:00:00:00:00', null],
    ['7', null],
  ])('%s', (Address, mac) => expect(of(nic(4, 'E1000', { Address })).nics).toMatchObject([{ mac }]));

  test('one address of two stays', () => {
    const Address = '00:50:56:aa:bb:cc';
    const { nics } = of(nic(4, 'E1000', { Address }) + nic(5, 'E1000', { Address }));
    expect(nics.map(({ mac }) => mac)).toEqual([Address, null]);
  });

  test('an EthernetPortItem is one, too', () => {
    const items = item(10, { InstanceID: 4, ResourceSubType: 'E1000' }, { element: 'EthernetPortItem' });
    expect(of(items).nics).toHaveLength(1);
  });
});

test('what is of the other host goes, with a warning each', () => {
  const items =
    item(1, { InstanceID: 4, ElementName: 'VMCI device', ResourceSubType: 'vmware.vmci' }) +
    item(1, { InstanceID: 5, ResourceSubType: 'vmware.pcipassthrough' }) +
    item(22, { InstanceID: 6 }) +
    item(21, { InstanceID: 7 }).repeat(5);
  const appliance = of(items + sata(3) + disk(9, 3, 0));
  expect(appliance.serialPorts).toBe(4);
  expect(texts(appliance)).toEqual(
    expect.arrayContaining([
      'Item "4" (VMCI device): Only VMware has it.',
      'Item "5": Devices of the other host are not passed through.',
      'Item "6": Devices of the kind 22 are left out.',
      'Item "7": A VM has at most 4 serial ports.',
    ]),
  );
});

test('a name that would not fit on a line is one in warnings', () => {
  const items = item(22, { InstanceID: 4, ElementName: `a\nb\u202e${'x'.repeat(9999)}` });
  const [warning] = of(items + sata(3) + disk(9, 3, 0)).warnings;
  expect(warning?.element).toMatch(/^Item "4" \(a b x{116}\)$/);
});
