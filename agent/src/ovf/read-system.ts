import type { Element } from '@xmldom/xmldom';
import { children } from '../domain-xml/index.ts';
import type { OvfItem, OvfProperty, OvfSystem, Warning } from './model.ts';
import { OVF, ovfChildren, ovfText, quoted, textOf, value } from './tree.ts';
import { wholeOf } from './units.ts';

/** @param inherited properties of the collections around it */
export function readSystem(element: Element, inherited: readonly OvfProperty[]): OvfSystem {
  const id = value(element, 'id') ?? '';
  const warnings = children(element).flatMap(section => (isRead(section) ? [] : ignoredSection(section)));
  const [hardware, ...others] = ovfChildren(element, 'VirtualHardwareSection');
  for (const other of others)
    warnings.push({ ...ignoredSection(other), text: 'Another one stands before it, which is taken.' });
  return {
    id,
    name: ovfText(element, 'Name') || id,
    description: ovfChildren(element, 'AnnotationSection')
      .map(section => ovfText(section, 'Annotation'))
      .join('\n'),
    os: readOs(element),
    items: hardware ? readItems(hardware, warnings) : [],
    settings: readSettings(element, hardware),
    properties: [...readProperties(element), ...inherited],
    warnings,
  };
}

const READ = ['Info', 'Name', 'AnnotationSection', 'OperatingSystemSection', 'VirtualHardwareSection'];
/** What VirtualBox keeps for itself: of it only the firmware is read. */
const VIRTUALBOX = 'http://www.virtualbox.org/ovf/machine';

const isVirtualBox = (section: Element): boolean => section.namespaceURI === VIRTUALBOX;

const isRead = (section: Element): boolean =>
  section.namespaceURI === OVF ? READ.includes(section.localName ?? '') : isVirtualBox(section);

const SECTIONS: Record<string, string> = {
  EulaSection: 'Licences are not shown',
  InstallSection: 'Nothing is done at the first start for the software of the appliance',
  ProductSection: 'Properties are not handed to the guest, and no script of the appliance is run',
  ResourceAllocationSection: 'No resources are reserved',
  StartupSection: 'VMs are not started in an order',
  BootOrderSection: 'The VM starts from its first disk, then from its CD-ROM',
};

/**
 * A section that has no counterpart is left out, also one that the descriptor demands: OVF (DSP0243 9.1) would have the
 * whole refused then, but what cannot be interpreted is to be ignored (specification 2.3, rule 5), and the VM is looked at before its first start.
 */
export function ignoredSection(section: Element): Warning {
  const name = section.localName ?? '';
  const known = Object.hasOwn(SECTIONS, name) ? SECTIONS[name] : 'It is ignored';
  const isDemanded = value(section, 'required') === 'true';
  const text = `${known}${isDemanded ? ', although the descriptor demands it' : ''}.`;
  return { element: section.tagName.slice(0, 100), key: 'ignored', text };
}

export function readProperties(holder: Element): OvfProperty[] {
  return ovfChildren(holder, 'ProductSection').flatMap(section =>
    ovfChildren(section, 'Property').map(property => ({
      key: value(property, 'key') ?? '',
      value: value(property, 'value') ?? '',
      values: new Map(
        ovfChildren(property, 'Value').map(one => [
          value(one, 'configuration') ?? '',
          value(one, 'value') ?? '',
        ]),
      ),
    })),
  );
}

function readOs(system: Element): OvfSystem['os'] {
  const [section] = ovfChildren(system, 'OperatingSystemSection');
  const own = section && children(section).find(({ localName }) => localName === 'OSType');
  return {
    cimId: (section && value(section, 'id')) ?? '',
    vmwareType: (section && value(section, 'osType')) ?? '',
    virtualBoxType: own ? textOf(own) : '',
    description: section ? ovfText(section, 'Description') : '',
  };
}

const ITEMS = ['Item', 'StorageItem', 'EthernetPortItem'];

function readItems(hardware: Element, warnings: Warning[]): OvfItem[] {
  const items: OvfItem[] = [];
  for (const element of children(hardware)) {
    const name = element.localName ?? '';
    if (ITEMS.includes(name)) {
      // limits of what a user may choose, beside the item that holds the value
      const bound = value(element, 'bound') ?? 'normal';
      if (bound === 'normal') items.push(readItem(element));
    } else if (!['Info', 'System', ...SETTINGS].includes(name)) warnings.push(ignoredSection(element));
  }
  return items;
}

/** Fields are told by their names alone: three namespaces of CIM have them, and old writers a case of their own. */
function readItem(element: Element): OvfItem {
  const fields = new Map<string, string>();
  for (const field of children(element)) {
    const name = (field.localName ?? '').toLowerCase();
    if (!fields.has(name)) fields.set(name, textOf(field));
  }
  const get = (name: string) => fields.get(name) || null;
  const instanceId = get('instanceid') ?? '';
  const title = get('elementname') ?? get('caption') ?? get('description');
  return {
    label: `${element.localName} ${quoted(instanceId)}${title ? ` (${quoted(title).slice(1, -1)})` : ''}`,
    instanceId,
    resourceType: wholeOf(fields.get('resourcetype')) ?? 0,
    subTypes: words(get('resourcesubtype')?.toLowerCase()),
    parent: get('parent'),
    address: get('address'),
    addressOnParent: wholeOf(fields.get('addressonparent')) ?? null,
    hostResource: get('hostresource'),
    connection: get('connection'),
    quantity: get('virtualquantity'),
    unit: get('allocationunits'),
    coresPerSocket: wholeOf(fields.get('corespersocket')) || null,
    configurations: words(value(element, 'configuration')),
  };
}

const words = (text: string | undefined): string[] => text?.split(/[\s,;]+/).filter(Boolean) ?? [];

const SETTINGS = ['Config', 'ExtraConfig'];

function readSettings(system: Element, hardware: Element | undefined): Map<string, string> {
  const settings = new Map<string, string>();
  for (const element of hardware ? children(hardware) : []) {
    if (!SETTINGS.includes(element.localName ?? '')) continue;
    settings.set((value(element, 'key') ?? '').toLowerCase(), value(element, 'value') ?? '');
  }
  for (const machine of children(system).filter(isVirtualBox)) {
    const parts = children(machine).filter(({ localName }) => localName === 'Hardware');
    for (const part of parts.flatMap(hardwareOfIt => children(hardwareOfIt))) {
      const type = (value(part, 'type') ?? '').toLowerCase();
      if (part.localName === 'Firmware' && type.startsWith('efi')) settings.set('firmware', 'efi');
      if (part.localName === 'TrustedPlatformModule' && type !== 'none') settings.set('tpm', type);
    }
  }
  return settings;
}
