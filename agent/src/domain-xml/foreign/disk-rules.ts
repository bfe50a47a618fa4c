import type { Element } from '@xmldom/xmldom';
import { attr, child, children, ensureChild, remove } from '../dom.ts';
import { removeChildren } from '../edit.ts';
import { serializeXml } from '../safe-xml.ts';
import { el, RUNTIME, type Rule, text } from './rule.ts';
import type { FileUse, GateFile, XmlGate } from './sanitize.ts';

/** Of disks of other domains: a restored domain has none. */
const LENT_PREFIX = 'ua-virtkeep-';

/** A device's place in the guest. */
export const ADDRESS = el(
  'type domain bus slot function multifunction controller target unit port cssid ssid devno reg iobase irq base',
  { zpci: el('uid fid') },
);
export const ALIAS = el('name', {}, alias => !attr(alias, 'name')?.startsWith(LENT_PREFIX));
/** What any device may have. */
export const OF_DEVICES = {
  address: ADDRESS,
  alias: ALIAS,
  acpi: el('index nodeset'),
  boot: el('order loadparm'),
};

const SECRET = el('type uuid usage');
const ENCRYPTION = el('format engine', {
  'secret*': SECRET,
  cipher: el('name size mode hash'),
  ivgen: el('name hash'),
});

/** Of files, and of network storage; a device's and a volume's are judged as a whole. */
const SOURCE = el('file/ dev/ index pool volume mode startupPolicy protocol name/ tls', {
  encryption: ENCRYPTION,
  'host*': el('name port transport=tcp'),
  snapshot: el('name'),
  initiator: el('', { iqn: el('name') }),
  auth: el('username type', { secret: SECRET }),
});

const IOTUNE = Object.fromEntries(
  ['bytes', 'iops'].flatMap(unit =>
    ['total', 'read', 'write'].flatMap(kind =>
      ['', '_max', '_max_length'].map(end => [`${kind}_${unit}_sec${end}`, text()]),
    ),
  ),
);

export const DISK_RULE: Rule = {
  ...el('type device=disk|cdrom|floppy|lun model snapshot=no|external|internal|manual', {
    ...OF_DEVICES,
    'driver!': el(
      'name=qemu type cache error_policy rerror_policy io ioeventfd event_idx copy_on_read discard ' +
        'discard_no_unref iothread detect_zeroes queues queue_size ats packed iommu page_per_vq',
      {
        metadata_cache: el('', { max_size: text('unit') }),
        iothreads: el('', { 'iothread*': el('id', { 'queue*': el('id') }) }),
      },
    ),
    auth: el('username', { secret: SECRET }),
    'source!': SOURCE,
    // libvirt reads the chain from the files, which the restore has made
    backingStore: RUNTIME,
    mirror: RUNTIME,
    'target!': el('dev bus tray removable rotation_rate dpofua'),
    iotune: el('', { ...IOTUNE, size_iops_sec: text(), group_name: text() }),
    readonly: el(),
    shareable: el(),
    transient: el('shareBacking'),
    serial: text(),
    wwn: text(),
    vendor: text(),
    product: text(),
    geometry: el('cyls heads secs trans'),
    blockio: el('logical_block_size physical_block_size discard_granularity'),
    encryption: ENCRYPTION,
  }),
  always: judgeDisk,
};

/**
 * A file must be one that the gate allows, in the format that it has; anything else must be the very source that was looked
 * at. A drive is emptied, another disk goes.
 */
function judgeDisk(disk: Element, gate: XmlGate): boolean | string[] {
  const source = child(disk, 'source');
  const device = attr(disk, 'device') ?? 'disk';
  const isDrive = device === 'cdrom' || device === 'floppy';
  if (!source) return isDrive;
  const file = judgedSource(disk, source, isDrive ? 'drive' : 'disk', gate);
  if (file) writeFacts(disk, source, file);
  if (file) return true;
  if (!isDrive) return false;
  remove(source);
  disk.setAttribute('type', 'file');
  return ['/source'];
}

function judgedSource(
  disk: Element,
  source: Element,
  use: FileUse,
  { fileAt, devices }: XmlGate,
): GateFile | undefined {
  const type = attr(disk, 'type') ?? 'file';
  if (type === 'file') return fileAt(attr(source, 'file') ?? '', use);
  const isSame =
    devices === null || devices.get(attr(child(disk, 'target'), 'dev') ?? '') === sourceText(disk);
  return isSame ? { format: null } : undefined;
}

function writeFacts(disk: Element, source: Element, { format, isReadonly }: GateFile): void {
  if (format !== null) {
    const driver = ensureChild(disk, 'driver', source);
    if (!attr(driver, 'name')) driver.setAttribute('name', 'qemu');
    driver.setAttribute('type', format);
  }
  if (isReadonly) ensureChild(disk, 'readonly');
}

/** Everything of a `<disk>` that says what it reads and writes, to be compared. */
export function sourceText(disk: Element): string {
  const parts = ['source', 'auth']
    .flatMap(name => children(disk, name))
    .map(part => {
      const copy = part.cloneNode(true) as Element;
      // what libvirt adds while the VM runs is not what is attached
      copy.removeAttribute('index');
      removeChildren(copy, 'reservations');
      if (children(copy).length === 0) copy.textContent = '';
      return serializeXml(copy);
    });
  return [attr(disk, 'type') ?? 'file', ...parts].join('\n').replaceAll(/\s+/g, ' ');
}
