import { describe, expect, test } from '@jest/globals';
import { DOMImplementation, type Element } from '@xmldom/xmldom';
import { XML_LIMITS } from '../safe-xml.ts';
import { LIVE_XML, SNAPSHOT_XML, UUID } from '../sample-xml.ts';
import { type GateFile, sanitizeForeign, type XmlGate } from './sanitize.ts';

const OURS = new Map<string, GateFile>([
  ['/pool/top.qcow2', { format: 'qcow2' }],
  ['/pool/mid.qcow2', { format: 'qcow2' }],
  ['/pool/crypt.img', { format: 'raw' }],
  ['/pool/cd.iso', { format: 'raw' }],
  ['/pool/former.iso', { format: 'raw', isReadonly: true }],
  ['/pool/second.memory', { format: 'raw' }],
  ['/pool/vars.fd', { format: null }],
]);
const STRICT: XmlGate = { strict: true, fileAt: path => OURS.get(path), devices: new Map() };
const OWN: XmlGate = { ...STRICT, strict: false };

/** Each removal of a child takes time for all its siblings. */
const dom = { removed: 0 };
const prototype = Object.getPrototypeOf(
  new DOMImplementation().createDocument(null, 'x').documentElement,
) as Element;
for (let at: object = prototype; at !== Object.prototype; at = Object.getPrototypeOf(at) as object) {
  const { removeChild } = at as Element;
  if (!Object.hasOwn(at, 'removeChild')) continue;
  (at as Element).removeChild = function (child) {
    dom.removed += 1;
    return removeChild.call(this, child) as typeof child;
  };
}

/** What the node has and a backup must not reach. */
const SECRET = '/etc/hostile-target';

const domain = ({ devices = '', os = '', more = '', attributes = '' }) => `<domain type='kvm' ${attributes}>
  <name>vm</name><uuid>${UUID}</uuid><memory unit='KiB'>131072</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type>${os}</os>
  <on_crash>restart</on_crash>
  <devices>${devices}</devices>${more}
</domain>`;

const disk = (source: string, attributes = "type='file'", more = '') =>
  `<disk ${attributes}><driver name='qemu' type='raw'/>${source}<target dev='vda' bus='virtio'/>${more}</disk>`;

describe('what an archive of somebody else must not bring to the node', () => {
  const file = `<source path='${SECRET}'/>`;
  test.each<[string, string]>([
    ['a serial device on a file', `<serial type='file'>${file}<target port='0'/></serial>`],
    ['a serial device on a device', `<serial type='dev'>${file}</serial>`],
    ['a log of a serial device', `<serial type='pty'><log file='${SECRET}' append='on'/></serial>`],
    ['a parallel device on a file', `<parallel type='file'>${file}</parallel>`],
    ['a console on a pipe', `<console type='pipe'>${file}</console>`],
    ['a console on a socket', `<console type='unix'><source mode='connect' path='${SECRET}'/></console>`],
    [
      'a channel on a socket of the node',
      `<channel type='unix'><source mode='connect' path='${SECRET}'/><target type='virtio' name='a'/></channel>`,
    ],
    ['a channel on a file', `<channel type='file'>${file}<target type='virtio' name='a'/></channel>`],
    [
      'a virtiofs share',
      `<filesystem type='mount'><driver type='virtiofs'/><source dir='${SECRET}'/><target dir='t'/></filesystem>`,
    ],
    [
      'a 9p share',
      `<filesystem type='mount' accessmode='passthrough'><source dir='${SECRET}'/><target dir='t'/></filesystem>`,
    ],
    [
      'a socket of a virtiofs daemon',
      `<filesystem type='mount'><driver type='virtiofs'/><source socket='${SECRET}'/><target dir='t'/></filesystem>`,
    ],
    [
      'a host device',
      "<hostdev mode='subsystem' type='pci' managed='yes'><source><address bus='3'/></source></hostdev>",
    ],
    [
      'a host device of a container',
      `<hostdev mode='capabilities' type='storage'><source><block>${SECRET}</block></source></hostdev>`,
    ],
    [
      'a network device of the host',
      "<interface type='hostdev'><source><address type='pci'/></source></interface>",
    ],
    ['a script of a network device', `<interface type='ethernet'><script path='${SECRET}'/></interface>`],
    [
      'a script of a bridged one',
      `<interface type='bridge'><source bridge='b'/><script path='${SECRET}'/></interface>`,
    ],
    [
      'a backend of one',
      `<interface type='bridge'><source bridge='b'/><backend tap='${SECRET}'/></interface>`,
    ],
    [
      'a socket of a network device',
      `<interface type='vhostuser'><source type='unix' path='${SECRET}' mode='client'/></interface>`,
    ],
    ['a ROM', `<interface type='bridge'><source bridge='b'/><rom file='${SECRET}'/></interface>`],
    ['a redirected device', `<redirdev bus='usb' type='dev'>${file}</redirdev>`],
    ['a redirected one of the network', "<redirdev bus='usb' type='tcp'><source host='hostile'/></redirdev>"],
    ['a smart card', `<smartcard mode='host-certificates'><database>${SECRET}</database></smartcard>`],
    ['an emulator', `<emulator>${SECRET}</emulator>`],
    ['random numbers of a file', `<rng model='virtio'><backend model='random'>${SECRET}</backend></rng>`],
    [
      'random numbers of a socket',
      `<rng model='virtio'><backend model='egd' type='unix'><source path='${SECRET}'/></backend></rng>`,
    ],
    [
      'a TPM of the node',
      `<tpm model='tpm-crb'><backend type='passthrough'><device path='${SECRET}'/></backend></tpm>`,
    ],
    [
      'a TPM at a socket',
      `<tpm model='tpm-crb'><backend type='external'><source type='unix' path='${SECRET}'/></backend></tpm>`,
    ],
    [
      'the place of a TPM',
      `<tpm model='tpm-crb'><backend type='emulator'><source type='dir' path='${SECRET}'/></backend></tpm>`,
    ],
    ['shared memory', "<shmem name='hostile-target'><model type='ivshmem-plain'/></shmem>"],
    ['a vsock', "<vsock model='virtio'><cid auto='no' address='2'/></vsock>"],
    [
      'an NVDIMM',
      `<memory model='nvdimm'><source><path>${SECRET}</path></source><target><size>1</size></target></memory>`,
    ],
    ['a persistent store', `<pstore backend='acpi-erst'><path>${SECRET}</path></pstore>`],
    ['a display on a socket', `<graphics type='vnc' socket='${SECRET}'/>`],
    ['a listener on a socket', `<graphics type='vnc'><listen type='socket' socket='${SECRET}'/></graphics>`],
    ['a render node', `<graphics type='egl-headless'><gl rendernode='${SECRET}'/></graphics>`],
    ['one of SPICE', `<graphics type='spice'><gl enable='yes' rendernode='${SECRET}'/></graphics>`],
    ['a display of the host', `<graphics type='sdl' xauth='${SECRET}' display=':0'/>`],
    ['a GPU process', "<video><driver name='vhostuser'/><model type='virtio'/></video>"],
    ['sound into a file', `<audio id='1' type='file' path='${SECRET}'/>`],
    ['sound of a device', `<audio id='1' type='oss'><input dev='${SECRET}'/></audio>`],
    ['an input device', `<input type='passthrough' bus='virtio'><source evdev='${SECRET}'/></input>`],
    ['one that takes the keyboard', `<input type='evdev'><source dev='${SECRET}'/></input>`],
    ['a lease', `<lease><lockspace>l</lockspace><key>k</key><target path='${SECRET}'/></lease>`],
    ['a disk on a file', disk(`<source file='${SECRET}'/>`)],
    ['a disk with a dotted path', disk("<source file='/pool/../etc/hostile-target'/>")],
    ['a disk on a block device', disk("<source dev='/dev/hostile-target'/>", "type='block'")],
    ['a LUN', disk("<source dev='/dev/hostile-target'/>", "type='block' device='lun' rawio='yes'")],
    ['a disk on a directory', disk(`<source dir='${SECRET}'/>`, "type='dir'")],
    ['a volume', disk("<source pool='other' volume='hostile-target'/>", "type='volume'")],
    [
      'a network disk at a socket',
      disk(
        `<source protocol='nbd' name='x'><host transport='unix' socket='${SECRET}'/></source>`,
        "type='network'",
      ),
    ],
    ['an NVMe disk', disk("<source type='pci' namespace='1'><address bus='3'/></source>", "type='nvme'")],
    ['a disk at a socket', disk(`<source type='unix' path='${SECRET}'/>`, "type='vhostuser'")],
    ['a CD-ROM', disk(`<source file='${SECRET}'/>`, "type='file' device='cdrom'", '<readonly/>')],
    ['a floppy', disk(`<source file='${SECRET}'/>`, "type='file' device='floppy'")],
    [
      'a data file of a disk',
      disk(
        `<source file='/pool/top.qcow2'><dataStore type='file'><source file='${SECRET}'/></dataStore></source>`,
      ),
    ],
    [
      "the helper of a disk's reservations",
      disk(
        `<source file='/pool/top.qcow2'><reservations managed='no'><source type='unix' path='${SECRET}' mode='client'/></reservations></source>`,
      ),
    ],
    ['a second source', disk(`<source file='/pool/top.qcow2'/><source file='${SECRET}'/>`)],
    [
      'a source in a namespace, which libvirt takes for its own',
      disk(`<source file='/pool/top.qcow2'/><x:source xmlns:x='urn:x' file='${SECRET}'/>`),
    ],
    [
      'the disk of another VM',
      `<disk type='file'><source file='/pool/top.qcow2'/><target dev='vda'/><alias name='ua-virtkeep-hostile-target'/></disk>`,
    ],
  ])('%s', (_what, devices) => {
    const { xml, leftOut } = sanitizeForeign(domain({ devices }), STRICT);
    expect(xml).not.toMatch(/hostile|virtiofs|hostdev|<vsock|vhostuser|nvme|connect|passthrough/);
    expect(leftOut).not.toEqual([]);
  });

  test.each<[string, Parameters<typeof domain>[0]]>([
    ['a kernel', { os: `<kernel>${SECRET}</kernel>` }],
    ['an initrd', { os: `<initrd>${SECRET}</initrd>` }],
    ['a device tree', { os: `<dtb>${SECRET}</dtb>` }],
    ['an ACPI table', { os: `<acpi><table type='slic'>${SECRET}</table></acpi>` }],
    ['a loader', { os: `<loader readonly='yes' type='rom'>${SECRET}</loader>` }],
    ['a dotted one', { os: "<loader type='rom'>/usr/share/../../etc/hostile-target</loader>" }],
    ['variables', { os: `<nvram>${SECRET}</nvram>` }],
    ['variables of a template', { os: `<nvram template='${SECRET}'>/pool/vars.fd</nvram>` }],
    ['variables at a source', { os: `<nvram type='file'><source file='${SECRET}'/></nvram>` }],
    [
      'variables on a network',
      { os: "<nvram type='network'><source protocol='nbd' name='hostile'/></nvram>" },
    ],
    ['a boot loader', { more: `<bootloader>${SECRET}</bootloader>` }],
    ['a label', { more: "<seclabel type='static' model='dac'><label>+0:+0 hostile</label></seclabel>" }],
    ['no label at all', { more: "<seclabel type='none' model='hostile'/>" }],
    ['a control group', { more: '<resource><partition>/hostile</partition></resource>' }],
    ['real time', { more: "<cputune><vcpusched vcpus='0' scheduler='hostile' priority='99'/></cputune>" }],
    ['a device of the node', { more: `<blkiotune><device><path>${SECRET}</path></device></blkiotune>` }],
    [
      'a file given to the guest',
      { more: `<sysinfo type='fwcfg'><entry name='opt/x' file='${SECRET}'/></sysinfo>` },
    ],
    ['the serial numbers of the node', { os: "<smbios mode='host' x='hostile'/>" }],
    ['a dump of each crash', { more: '<on_crash>coredump-hostile</on_crash>' }],
    ['memory in a file', { more: "<memoryBacking><source type='file' x='hostile'/></memoryBacking>" }],
    ['metadata of other programs', { more: "<metadata><o:vm xmlns:o='urn:hostile'/></metadata>" }],
    [
      'arguments of QEMU',
      {
        attributes: "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'",
        more: "<qemu:commandline><qemu:arg value='hostile'/></qemu:commandline><qemu:override><qemu:device alias='hostile'/></qemu:override>",
      },
    ],
    [
      'a second list of devices',
      { more: `<devices><serial type='file'><source path='${SECRET}'/></serial></devices>` },
    ],
  ])('%s', (_what, parts) => {
    const { xml, leftOut } = sanitizeForeign(domain(parts), STRICT);
    expect(xml).not.toMatch(/hostile|mode=.host|fwcfg/);
    expect(leftOut).not.toEqual([]);
  });

  test.each([
    [`<channel type='unix'><source mode='bind' path='${SECRET}'/><target type='virtio' name='a'/></channel>`],
    [disk(`<source file='/pool/top.qcow2'/><mirror type='file' file='${SECRET}'/>`)],
    [
      disk(
        `<source file='/pool/top.qcow2'/><backingStore type='file'><format type='raw'/><source file='${SECRET}'/></backingStore>`,
      ),
    ],
  ])('what libvirt says of a running VM goes without a word: %s', devices => {
    const { xml, leftOut } = sanitizeForeign(domain({ devices }), STRICT);
    expect(xml).not.toContain('hostile');
    expect(leftOut).toEqual([]);
  });

  test('words, comments and instructions among elements hide nothing', () => {
    const serial = `<serial type='file'><source path='${SECRET}'/></serial>`;
    const { xml } = sanitizeForeign(
      domain({ devices: `words<!-- x --><?x y?>${serial}`, more: 'words' }),
      STRICT,
    );
    expect(xml).not.toMatch(/hostile|words|<!--|<\?/);
    const other = domain({ devices: serial }).replace("type='kvm'", "type='xen'");
    expect(() => sanitizeForeign(other, STRICT)).toThrow(expect.objectContaining({ msgKey: 'xml_invalid' }));
  });

  test('entities and namespaces of the whole are refused', () => {
    const entity = `<!DOCTYPE d [<!ENTITY x SYSTEM 'file://${SECRET}'>]>${domain({ more: '&x;' })}`;
    expect(() => sanitizeForeign(entity, STRICT)).toThrow(expect.objectContaining({ msgKey: 'xml_invalid' }));
    const named = "<x:domain xmlns:x='urn:x'><name>vm</name></x:domain>";
    expect(() => sanitizeForeign(named, OWN)).toThrow(expect.objectContaining({ msgKey: 'xml_invalid' }));
  });
});

describe('what stays', () => {
  test('a guest keeps its hardware', () => {
    const devices = `
      <disk type="file" device="disk"><driver name="qemu" type="qcow2" cache="none" discard="unmap"/><source file="/pool/top.qcow2"/><target dev="vda" bus="virtio"/><serial>S1</serial><boot order="1"/><address type="pci" domain="0x0000" bus="0x04" slot="0x00" function="0x0"/></disk>
      <controller type="pci" index="1" model="pcie-root-port"><model name="pcie-root-port"/><target chassis="1" port="0x10"/></controller>
      <interface type="bridge"><mac address="52:54:00:aa:bb:cc"/><source bridge="br0"/><model type="virtio"/></interface>
      <serial type="pty"><target type="isa-serial" port="0"><model name="isa-serial"/></target></serial>
      <channel type="unix"><target type="virtio" name="org.qemu.guest_agent.0"/></channel>
      <channel type="spicevmc"><target type="virtio" name="com.redhat.spice.0"/></channel>
      <redirdev bus="usb" type="spicevmc"/>
      <input type="tablet" bus="usb"/>
      <graphics type="vnc" port="-1" autoport="yes" listen="127.0.0.1" passwd="guest"><listen type="address" address="127.0.0.1"/></graphics>
      <video><model type="virtio" heads="1" primary="yes"/></video>
      <tpm model="tpm-crb"><backend type="emulator" version="2.0"/></tpm>
      <watchdog model="itco" action="reset"/>
      <memballoon model="virtio"/>
      <rng model="virtio"><backend model="random">/dev/urandom</backend></rng>`;
    const os =
      '<loader readonly="yes" secure="yes" type="pflash">/usr/share/OVMF/OVMF_CODE.fd</loader><nvram template="/usr/share/OVMF/OVMF_VARS.fd">/pool/vars.fd</nvram><boot dev="hd"/>';
    const whole = domain({ devices, os }).replaceAll("'", '"');
    expect(sanitizeForeign(whole, STRICT)).toEqual({ xml: whole.replace('"kvm" >', '"kvm">'), leftOut: [] });
  });

  test('what a live definition of libvirt has, without what reaches the node', () => {
    const { xml, leftOut } = sanitizeForeign(LIVE_XML, STRICT);
    expect(leftOut).toEqual([
      'os/nvram',
      'devices/emulator',
      'devices/disk',
      'devices/disk/source',
      'devices/hostdev',
      'seclabel',
      'qemu:commandline',
    ]);
    expect(xml).toContain('/pool/top.qcow2');
    expect(xml).toContain('virtkeep:domain');
    expect(xml).toContain('libosinfo:os');
    expect(xml).not.toContain('/pool/mid.qcow2');
  });

  test('no device is left without what it cannot be without', () => {
    const devices = `<rng model='virtio'><backend model='random'>${SECRET}</backend></rng>
      <interface type='direct'><source dev='eth0' mode='passthrough'/></interface>
      <tpm model='tpm-crb'><backend type='passthrough'><device path='${SECRET}'/></backend></tpm>
      <serial type='unix'><source mode='connect' path='${SECRET}'/></serial>`;
    const { xml } = sanitizeForeign(domain({ devices }), STRICT);
    expect(xml).not.toMatch(/<rng|<interface|<tpm/);
    expect(xml).toContain('<serial type="pty"/>');
  });

  test('a device at an end that the node has not given keeps its place in the guest', () => {
    const devices = `<serial type='file'><source path='${SECRET}'/><target port='0'/></serial>`;
    expect(sanitizeForeign(domain({ devices }), STRICT).xml).toContain(
      '<serial type="pty"><target port="0"/></serial>',
    );
  });

  test('an own archive keeps what its owner defined, on the files of the restore', () => {
    const { xml, leftOut } = sanitizeForeign(LIVE_XML, OWN);
    for (const kept of ['<hostdev', 'qemu:commandline', '<emulator>', '<seclabel'])
      expect(xml).toContain(kept);
    expect(leftOut).toEqual(['os/nvram', 'devices/disk', 'devices/disk/source']);
    const two = "<memory model='dimm'/><memory model='dimm'/>";
    expect(sanitizeForeign(domain({ devices: two }), OWN).leftOut).toEqual([]);
  });

  test('an own archive has no second disk, in a namespace or in a list of its own', () => {
    const devices = disk(`<source file='/pool/top.qcow2'/><x:source xmlns:x='urn:x' file='${SECRET}'/>`);
    const more = `<devices>${disk(`<source file='${SECRET}'/>`)}</devices>`;
    const { xml, leftOut } = sanitizeForeign(domain({ devices, more }), OWN);
    expect(xml).not.toContain('hostile');
    expect(leftOut).toEqual(['devices/disk/x:source', 'devices']);
  });

  test.each([OWN, STRICT])(
    'the state of a TPM has a place of its own, not that of the VM that was backed up',
    gate => {
      const source = `<source type='dir' path='${SECRET}'/>`;
      const devices = `<tpm model='tpm-crb'><backend type='emulator' version='2.0'>${source}</backend></tpm>`;
      const { xml, leftOut } = sanitizeForeign(domain({ devices }), gate);
      expect(xml).toMatch(/<tpm model="tpm-crb"><backend type="emulator" version="2.0"\/><\/tpm>/);
      expect(leftOut).toEqual(['devices/tpm/backend/source']);
    },
  );

  test.each([OWN, STRICT])('a file is named in the format that it has, whatever the XML says', gate => {
    const cd = (path: string, type: string, device: string) =>
      `<disk type='file' device='${device}'><driver name='qemu' type='${type}' cache='none'/><source file='${path}'/><target dev='sda'/></disk>`;
    const devices = [
      cd('/pool/cd.iso', 'qcow2', 'cdrom'),
      cd('/pool/cd.iso', 'vmdk', 'floppy'),
      cd('/pool/crypt.img', 'qcow2', 'disk'),
      "<disk type='file'><source file='/pool/top.qcow2'/><target dev='vdb'/></disk>",
    ].join('');
    const { xml } = sanitizeForeign(domain({ devices }), gate);
    expect(xml.match(/<driver [^>]*>/g)).toEqual([
      ...Array.from({ length: 3 }, () => '<driver name="qemu" type="raw" cache="none"/>'),
      '<driver name="qemu" type="qcow2"/>',
    ]);
    const state = `<domainsnapshot><disks><disk name='vda' snapshot='external'><driver type='raw'/><source file='/pool/top.qcow2'/></disk></disks>${domain({ devices })}</domainsnapshot>`;
    expect(sanitizeForeign(state, gate, 'domainsnapshot').xml.match(/type="(raw|qcow2)"/g)).toEqual(
      ['qcow2', 'raw', 'raw', 'raw', 'qcow2'].map(type => `type="${type}"`),
    );
  });

  test.each([OWN, STRICT])('nobody writes to an image of the node', gate => {
    const drive = (device: string, path: string) => disk(`<source file='${path}'/>`, `device='${device}'`);
    const clean = (devices: string) => sanitizeForeign(domain({ devices }), gate).xml;
    expect(clean(drive('floppy', '/pool/former.iso'))).toContain('<readonly/>');
    expect(clean(drive('floppy', '/pool/cd.iso'))).not.toContain('<readonly/>');
  });

  test('a device of two ends keeps both in an own archive', () => {
    const serial =
      '<serial type="udp"><source mode="bind" host="0.0.0.0" service="2000"/><source mode="connect" host="127.0.0.1" service="2001"/><target port="0"/></serial>';
    const { xml, leftOut } = sanitizeForeign(domain({ devices: serial }), OWN);
    expect(xml).toContain(serial);
    expect(leftOut).toEqual([]);
    expect(sanitizeForeign(domain({ devices: serial }), STRICT).xml).toContain(
      '<serial type="pty"><target port="0"/></serial>',
    );
  });

  test('an element that goes takes none of its name along', () => {
    const more = `<sysinfo type='fwcfg'><entry name='opt/x' file='${SECRET}'/></sysinfo><sysinfo type='smbios'><bios><entry name='vendor'>x</entry></bios></sysinfo>`;
    const { xml, leftOut } = sanitizeForeign(domain({ more }), STRICT);
    expect(xml).toContain('<entry name="vendor">x</entry>');
    expect(leftOut).toEqual(['sysinfo']);
  });

  test.each([OWN, STRICT])('as many elements as an archive may have are judged one after the other', gate => {
    const many = '<backingStore/> '.repeat(XML_LIMITS.elements - 100);
    const before = dom.removed;
    const { xml } = sanitizeForeign(
      domain({ devices: disk(`<source file='/pool/top.qcow2'/>${many}`) }),
      gate,
    );
    expect(xml).not.toContain('backingStore');
    expect(dom.removed).toBe(before);
    const tooMany = domain({ devices: '<x/>'.repeat(XML_LIMITS.elements) });
    expect(() => sanitizeForeign(tooMany, gate)).toThrow(expect.objectContaining({ msgKey: 'xml_invalid' }));
  });

  test('the definition of a machine with hundreds of devices passes', () => {
    const one = disk(
      "<source file='/pool/top.qcow2'/>",
      "type='file'",
      "<address type='pci'/><boot order='1'/>",
    );
    const chain = '<backingStore><format/><source/><backingStore/></backingStore>'.repeat(4);
    const devices = one.replace('</disk>', `${chain}</disk>`).repeat(700);
    expect(sanitizeForeign(domain({ devices }), OWN).leftOut).toEqual([]);
  });

  test('in place of a UEFI firmware that is not shipped libvirt chooses one', () => {
    const nvram = '<nvram template="/usr/share/OVMF/OVMF_VARS.fd">/pool/vars.fd</nvram>';
    const clean = (loader: string) => sanitizeForeign(domain({ os: `${loader}${nvram}` }), STRICT);
    const { xml, leftOut } = clean(`<loader readonly='yes' type='pflash'>/opt/ovmf.fd</loader>`);
    expect(xml).toMatch(/<os firmware="efi"><type [^>]*>hvm<\/type><nvram>\/pool\/vars.fd<\/nvram><\/os>/);
    expect(leftOut).toEqual(['os/loader']);
    expect(clean(`<loader secure='yes' type='pflash'>/opt/ovmf.fd</loader>`).xml).toContain(
      '<loader secure="yes"/><nvram>/pool/vars.fd</nvram>',
    );
    expect(clean(`<loader secure='yes'/>`).leftOut).toEqual([]);
  });

  test('a device that was looked at stays, and no other one at its target', () => {
    const lun = disk("<source dev='/dev/sdx' index='2'/>", "type='block' device='lun'");
    const devices = new Map([['vda', 'block <source dev="/dev/sdx"/>']]);
    expect(sanitizeForeign(domain({ devices: lun }), { ...OWN, devices }).leftOut).toEqual([]);
    // libvirt tells where its helper listens of a running VM alone
    const running = lun.replace(
      "index='2'/>",
      "index='2'><reservations managed='yes'><source type='unix' path='/run/pr.sock'/></reservations></source>",
    );
    expect(sanitizeForeign(domain({ devices: running }), { ...OWN, devices }).leftOut).toEqual([]);
    const other = lun.replace('sdx', 'sdy');
    expect(sanitizeForeign(domain({ devices: other }), { ...OWN, devices }).leftOut).toEqual([
      'devices/disk',
    ]);
  });
});

describe('a saved state', () => {
  const clean = (xml: string, gate: XmlGate) => sanitizeForeign(xml, gate, 'domainsnapshot');

  test.each([OWN, STRICT])('names only files of the restore', gate => {
    const hostile = SNAPSHOT_XML.replace('/pool/second.memory', SECRET)
      .replace("<source file='/pool/top.qcow2'/>", `<source file='${SECRET}'/>`)
      .replace(
        "<disk name='sda' snapshot='no'/>",
        `<disk name='sda' snapshot='no'><source file='${SECRET}'/></disk>`,
      )
      .replace('/pool/mid.qcow2', SECRET)
      .replace('/iso/a.iso', SECRET)
      .replace(
        '</domainsnapshot>',
        `<revertDisks><disk><source file='${SECRET}'/></disk></revertDisks></domainsnapshot>`,
      );
    const { xml, leftOut } = clean(hostile, gate);
    expect(xml).not.toContain(SECRET);
    expect(xml).toContain('<memory snapshot="no"/>');
    expect(leftOut).toEqual(
      expect.arrayContaining([
        'memory@file',
        'disks/disk',
        'disks/disk/source',
        'domain/devices/disk/source',
        'revertDisks',
      ]),
    );
  });

  test('of the restore is as it was', () => {
    const { xml } = clean(SNAPSHOT_XML, OWN);
    expect(xml).toContain('<memory snapshot="external" file="/pool/second.memory"/>');
    expect(xml).toContain('<source file="/pool/top.qcow2"/>');
    expect(xml).toContain('hostdev');
  });
});
