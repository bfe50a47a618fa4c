/**
 * Devices that cannot reach the node. What a character device is connected to, and what else the node has to give (files,
 * devices, sockets, programs), is replaced by what libvirt makes anew for the domain, or the device is left out.
 */
import type { Element } from '@xmldom/xmldom';
import { attr, child, children, remove } from '../dom.ts';
import { DISK_RULE, OF_DEVICES } from './disk-rules.ts';
import { each, el, type Judge, type Rule, text } from './rule.ts';

const VIRTIO = 'iommu ats packed page_per_vq';

const CHAR_TARGET = el('type name port state', { 'model*': el('name') });
/** Backends that are the guest's own, or that libvirt makes. */
const CHAR_TYPES = new Set(['pty', 'null', 'vc', 'spicevmc', 'spiceport', 'qemu-vdagent']);

/** The guest keeps the device; its other end is a terminal of its own, or libvirt's own socket for a guest's agent. */
const ownEnd: Judge = device => {
  const type = attr(device, 'type') ?? 'pty';
  const sources = children(device, 'source');
  device.removeAttribute('tty');
  if (CHAR_TYPES.has(type)) {
    // the terminal that a pty had is gone; a channel of SPICE has a name
    for (const source of sources) source.removeAttribute('path');
    return true;
  }
  for (const part of sources) remove(part);
  if (type === 'unix' && device.localName === 'channel')
    return sources.every(source => attr(source, 'mode') !== 'connect') ? true : ['/source'];
  device.setAttribute('type', 'pty');
  return ['@type', ...(sources.length > 0 ? ['/source'] : [])];
};

const CHARACTER: Rule = el(
  'type tty/',
  {
    ...OF_DEVICES,
    source: el('channel mode path/', {
      clipboard: el('copypaste'),
      mouse: el('mode'),
    }),
    target: CHAR_TARGET,
  },
  ownEnd,
);

/** Without one that is allowed, libvirt takes no such device. */
const hasBackend: Judge = device => child(device, 'backend') !== undefined;

/** Forwards what the SPICE client has, and nothing of the node. */
const SPICE_ONLY = el('bus type=spicevmc mode=passthrough', OF_DEVICES);

const INTERFACE: Rule = el(
  'type=network|bridge|direct|user|internal managed trustGuestRxFilters',
  {
    ...OF_DEVICES,
    mac: el('address type check currentAddress'),
    source: el('network portgroup bridge dev mode=bridge|vepa|private portid'),
    target: el('dev'),
    guest: el('dev'),
    model: el('type'),
    driver: el(
      `name queues rx_queue_size tx_queue_size txmode ioeventfd event_idx rss rss_hash_report ${VIRTIO}`,
      {
        host: el('csum gso tso4 tso6 ecn ufo mrg_rxbuf'),
        guest: el('csum tso4 tso6 ecn ufo'),
      },
    ),
    link: el('state'),
    mtu: el('size'),
    bandwidth: el('', { inbound: el('average peak burst floor'), outbound: el('average peak burst') }),
    filterref: el('filter', { 'parameter*': el('name value') }),
    virtualport: el('type', {
      parameters: el('interfaceid profileid managerid typeid typeidversion instanceid'),
    }),
    vlan: el('trunk', { 'tag*': el('id nativeMode') }),
    rom: el('bar enabled'),
    'ip*': el('address family prefix peer'),
    'route*': el('family address netmask prefix gateway metric'),
    coalesce: el('', { rx: el('', { frames: el('max') }) }),
    tune: el('', { sndbuf: text() }),
    port: el('isolated'),
    teaming: el('type persistent'),
  },
  net => attr(net, 'type') === 'user' || child(net, 'source') !== undefined,
);

/** Where a display listens is the owner's choice, as long as it is no file of the node. */
const LISTEN = el('type=address|network|none address network');
const GRAPHICS: Rule = el(
  'type=vnc|spice port autoport tlsPort websocket listen passwd passwdValidTo connected keymap defaultMode sharePolicy',
  {
    'listen*': LISTEN,
    'channel*': el('name mode'),
    image: el('compression'),
    jpeg: el('compression'),
    zlib: el('compression'),
    playback: el('compression'),
    streaming: el('mode'),
    clipboard: el('copypaste'),
    mouse: el('mode'),
    filetransfer: el('enable'),
    gl: el('enable'),
    audio: el('id'),
  },
);

const VIDEO: Rule = el('', {
  ...OF_DEVICES,
  driver: el(`name=qemu vgaconf ${VIRTIO}`),
  model: el('type ram vram vram64 vgamem heads primary blob edid', {
    acceleration: el('accel2d accel3d'),
    resolution: el('x y'),
  }),
});

/** Sound of the guest goes to its SPICE client or nowhere. */
const AUDIO: Rule = el('id type timerPeriod', {}, audio => {
  if (['none', 'spice'].includes(attr(audio, 'type') ?? '')) return true;
  audio.setAttribute('type', 'none');
  return ['@type'];
});

const RNG: Rule = el(
  'model',
  {
    ...OF_DEVICES,
    driver: el(VIRTIO),
    rate: el('bytes period'),
    backend: text('model=random|builtin', '/dev/random', '/dev/urandom', '/dev/hwrng'),
  },
  hasBackend,
);

/** Where the state of another VM's TPM may lie: what is restored has its own, and takes it along when it is removed. */
const withoutPlace: Judge = backend => {
  const places = children(backend, 'source');
  for (const place of places) remove(place);
  return places.length > 0 ? ['/source'] : [];
};

/** Only software; its state lies where libvirt has it. */
const TPM: Rule = el(
  'model',
  {
    ...OF_DEVICES,
    backend: {
      ...el('type=emulator version persistent_state', {
        encryption: el('secret'),
        active_pcr_banks: el('', each('sha1 sha256 sha384 sha512', el())),
      }),
      always: withoutPlace,
    },
  },
  hasBackend,
);

const MEMORY_DEVICE: Rule = el('model=dimm|virtio-mem access discard uuid', {
  ...OF_DEVICES,
  source: el('', { pagesize: text('unit'), nodemask: text() }),
  target: el('', {
    size: text('unit'),
    node: text(),
    block: text('unit'),
    requested: text('unit'),
    current: text('unit'),
    address: el('base'),
  }),
});

const CONTROLLER: Rule = el('type index model ports vectors maxGrantFrames maxEventChannels', {
  ...OF_DEVICES,
  driver: el(`queues cmd_per_lun max_sectors ioeventfd iothread ${VIRTIO}`),
  master: el('startport'),
  model: el('name'),
  target: el('chassisNr chassis port busNr index hotplug memReserve', { node: text() }),
  pcihole64: text('unit'),
});

const INPUT: Rule = el('type=mouse|tablet|keyboard bus model', { ...OF_DEVICES, driver: el(VIRTIO) });

const SIMPLE = {
  hub: el('type', OF_DEVICES),
  panic: el('model', OF_DEVICES),
  nvram: el('', OF_DEVICES),
  watchdog: el('model action=reset|shutdown|poweroff|pause|none|inject-nmi', OF_DEVICES),
  memballoon: el('model autodeflate freePageReporting', {
    ...OF_DEVICES,
    stats: el('period'),
    driver: el(VIRTIO),
  }),
  sound: el('model multichannel streams', {
    ...OF_DEVICES,
    'codec*': el('type'),
    audio: el('id'),
    driver: el(VIRTIO),
  }),
  iommu: el('model', {
    ...OF_DEVICES,
    driver: el('intremap caching_mode eim iotlb aw_bits dma_translation xtsup pt'),
  }),
  crypto: el('model type', { ...OF_DEVICES, backend: el('model=builtin queues') }),
  redirfilter: el('', { 'usbdev*': el('class vendor product version allow') }),
};

const MANY = {
  ...each('serial parallel console channel', CHARACTER),
  ...each('redirdev smartcard', SPICE_ONLY),
  disk: DISK_RULE,
  controller: CONTROLLER,
  interface: INTERFACE,
  graphics: GRAPHICS,
  video: VIDEO,
  audio: AUDIO,
  rng: RNG,
  tpm: TPM,
  input: INPUT,
  memory: MEMORY_DEVICE,
  ...SIMPLE,
};

export const DEVICES_RULE: Rule = el(
  '',
  Object.fromEntries(Object.entries(MANY).map(([name, rule]) => [`${name}*`, rule])),
);

/** What a guest reads as its firmware or kernel it can tell: only what every distribution ships to everybody. */
export function isShippedFirmware(path: string): boolean {
  return path.startsWith('/usr/share/') && !path.split('/').some(step => step === '..' || step === '.');
}

/** A firmware is only read; which file it may be, the whole of `<os>` tells. */
export const LOADER: Rule = {
  ...text('readonly=yes type=rom|pflash secure stateless format'),
  judge: (loader: Element) => {
    if (attr(loader, 'type') === 'pflash') loader.setAttribute('readonly', 'yes');
    return true;
  },
};
