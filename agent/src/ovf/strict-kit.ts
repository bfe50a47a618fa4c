// What importers that keep to DMTF's schema ask of a descriptor: order of elements, required attributes, ids that are there once, references that lead somewhere.
import type { Element } from '@xmldom/xmldom';
import { children, parseXml } from '../domain-xml/index.ts';
import { OVF } from './tree.ts';
import { unitBytes } from './units.ts';

const RASD = 'http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData';
const VSSD = 'http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData';
/** In the order of CIM's schema. */
const RASD_FIELDS =
  'Address AddressOnParent AllocationUnits AutomaticAllocation AutomaticDeallocation Caption Connection ConsumerVisibility Description ElementName HostResource InstanceID Limit MappingBehavior OtherResourceType Parent PoolID Reservation ResourceSubType ResourceType VirtualQuantity VirtualQuantityUnits Weight'.split(
    ' ',
  );
const VSSD_FIELDS =
  'Caption Description ElementName InstanceID VirtualSystemIdentifier VirtualSystemType'.split(' ');
const CONTROLLERS = ['5', '6', '20'];

/** @returns what is wrong, one sentence each; empty: nothing */
export function faultsOf(text: string): string[] {
  const faults: string[] = [];
  const say = (condition: boolean, fault: string) => {
    if (!condition) faults.push(fault);
  };
  const { root } = parseXml(text, 'Envelope', 'the descriptor');
  say(root.namespaceURI === OVF, 'the namespace is not that of OVF 1');
  const inner = (element: Element, ...names: string[]) => {
    const found = children(element).map(({ localName }) => localName ?? '');
    const rest = found.filter(name => !names.includes(name));
    say(rest.length === 0, `${element.tagName} has ${rest.join(', ')}`);
    const places = found.map(name => names.indexOf(name));
    say(
      places.every((place, at) => at === 0 || places[at - 1]! <= place),
      `${element.tagName} has its elements in another order`,
    );
  };
  inner(root, 'References', 'DiskSection', 'NetworkSection', 'VirtualSystem');
  const get = (element: Element, name: string) => element.getAttributeNS(OVF, name) ?? '';
  const all = (element: Element, name: string) => children(element).filter(one => one.localName === name);
  const files = all(all(root, 'References')[0]!, 'File');
  const unique = (ids: string[], what: string) =>
    say(new Set(ids).size === ids.length && !ids.includes(''), `${what} is not unique`);
  unique(
    files.map(file => get(file, 'id')),
    'an id of a file',
  );
  unique(
    files.map(file => get(file, 'href')),
    'a href',
  );
  for (const file of files) say(/^[\w.-]+$/.test(get(file, 'href')), `the href ${get(file, 'href')} is none`);
  for (const file of files) say(/^\d+$/.test(get(file, 'size')), 'a file has no size');
  const disks = all(root, 'DiskSection').flatMap(section => all(section, 'Disk'));
  unique(
    disks.map(disk => get(disk, 'diskId')),
    'an id of a disk',
  );
  for (const disk of disks) {
    say(
      files.some(file => get(file, 'id') === get(disk, 'fileRef')),
      'a disk refers to no file',
    );
    say(/^\d+$/.test(get(disk, 'capacity')), 'a capacity is no number');
    say(unitBytes(get(disk, 'capacityAllocationUnits')) !== undefined, 'a unit of capacity is none');
    say(get(disk, 'format').endsWith('#streamOptimized'), 'a format is another one');
  }
  const networks = all(root, 'NetworkSection').flatMap(section => all(section, 'Network'));
  const names = networks.map(network => get(network, 'name'));
  unique(names, 'a network');
  for (const section of [...all(root, 'DiskSection'), ...all(root, 'NetworkSection')])
    say(children(section)[0]?.localName === 'Info', `${section.tagName} does not begin with Info`);
  const systems = all(root, 'VirtualSystem');
  say(systems.length === 1, 'there is not one VM');
  const system = systems[0]!;
  say(get(system, 'id') !== '', 'the VM has no id');
  inner(system, 'Info', 'Name', 'OperatingSystemSection', 'VirtualHardwareSection', 'AnnotationSection');
  const [os] = all(system, 'OperatingSystemSection');
  say(/^\d+$/.test(get(os!, 'id')), 'the operating system has no number');
  inner(os!, 'Info', 'Description');
  const [hardware] = all(system, 'VirtualHardwareSection');
  inner(hardware!, 'Info', 'System', 'Item', 'Config');
  const [family] = all(hardware!, 'System');
  inner(family!, ...VSSD_FIELDS);
  for (const field of children(family!)) say(field.namespaceURI === VSSD, `${field.tagName} is not of CIM`);
  const items = all(hardware!, 'Item').map(element => {
    inner(element, ...RASD_FIELDS, 'CoresPerSocket');
    const fields = new Map(children(element).map(one => [one.localName ?? '', one.textContent ?? '']));
    say(fields.size === children(element).length, 'an item has a field twice');
    for (const one of children(element))
      say(one.namespaceURI === RASD || one.localName === 'CoresPerSocket', `${one.tagName} is not of CIM`);
    for (const name of ['ElementName', 'InstanceID', 'ResourceType'])
      say((fields.get(name) ?? '') !== '', `an item has no ${name}`);
    return fields;
  });
  unique(
    items.map(fields => fields.get('InstanceID') ?? ''),
    'an InstanceID',
  );
  const places = new Set<string>();
  for (const fields of items) {
    const parent = fields.get('Parent');
    const holder = items.find(other => other.get('InstanceID') === parent);
    if (parent !== undefined) {
      say(CONTROLLERS.includes(holder?.get('ResourceType') ?? ''), 'a parent is no controller');
      const place = `${parent} ${fields.get('AddressOnParent')}`;
      say(!places.has(place), 'two devices have one place');
      places.add(place);
      say(
        holder?.get('ResourceType') !== '6' || fields.get('AddressOnParent') !== '7',
        'a disk has the id of its controller',
      );
    }
    const host = fields.get('HostResource');
    const [, kind, id] = /^ovf:\/(disk|file)\/(.+)$/.exec(host ?? '') ?? [];
    const isThere =
      kind === 'disk'
        ? disks.some(disk => get(disk, 'diskId') === id)
        : files.some(file => get(file, 'id') === id);
    say(host === undefined || isThere, `${host} leads nowhere`);
    const network = fields.get('Connection');
    say(network === undefined || names.includes(network), 'an adapter is on no network');
    const unit = fields.get('AllocationUnits');
    say(
      fields.get('ResourceType') !== '4' || unitBytes(unit ?? '') !== undefined,
      'a unit of memory is none',
    );
  }
  for (const type of ['3', '4'])
    say(
      items.filter(fields => fields.get('ResourceType') === type).length === 1,
      `there is not one item ${type}`,
    );
  return faults;
}
