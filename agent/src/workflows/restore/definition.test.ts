import { afterEach, expect, jest, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { DOMParser } from '@xmldom/xmldom';
import { parseDomain, parseSnapshot } from '../../domain-xml/index.ts';
import { type DefinitionInput, restoredDefinition, restoredMemoryXml, restoredState } from './definition.ts';
import type { RestoredState } from './states.ts';

afterEach(() => {
  jest.restoreAllMocks();
});

const targets = (count: number) => Array.from({ length: count }, (_, index) => `vd${index}`);
const LEFT = targets(4_000).slice(2_000);

/** A half of its disks come back; it has one drive with an image. */
const domainXml = `<domain type='kvm'><name>vm</name><uuid>${newId()}</uuid><memory>1024</memory>
  <os><type arch='x86_64'>hvm</type></os><devices><emulator>/old/qemu</emulator>${targets(4_000)
    .map(target => `<disk type='file'><source file='/former/${target}'/><target dev='${target}'/></disk>`)
    .join('\n')}
  <disk type='file' device='cdrom'><source file='/former/cd'/><target dev='sda'/></disk></devices></domain>`;

const input = {
  xml: domainXml,
  config: parseDomain(domainXml),
  trust: 'own',
  identity: { name: 'copy', uuid: newId() },
  placement: {
    disks: targets(2_000).map(target => ({
      disk: { target, encryption: null },
      layers: [{ path: `/pool/${target}` }, { path: `/pool/${target}.1` }],
      fileOf: [0, 1],
    })),
    images: [{ path: '/pool/cd' }],
    drives: new Map([['sda', '/pool/cd']]),
  },
  nvramPath: null,
  attachable: new Map(),
  qcow2Images: new Set(),
  otherEmulator: true,
  inPlace: false,
  templateId: null,
} as unknown as DefinitionInput;

/** Trees that are built meanwhile: each costs a pass over the whole text, which somebody else wrote. */
function parses(work: () => void): number {
  const spy = jest.spyOn(DOMParser.prototype, 'parseFromString');
  work();
  return spy.mock.calls.length;
}

const disksOf = (xml: string) =>
  new Map(parseDomain(xml).disks.map(({ targetDev, path, format }) => [targetDev, [path, format]]));

test('a definition of thousands of disks is read once', () => {
  let xml = '';
  expect(parses(() => ({ xml } = restoredDefinition(input)))).toBe(1);
  const disks = disksOf(xml);
  expect(disks.size).toBe(2_001);
  expect(disks.get('vd1999')).toEqual(['/pool/vd1999.1', 'qcow2']);
  expect(disks.get('sda')).toEqual(['/pool/cd', 'raw']);
  expect(xml).not.toMatch('emulator');
});

test('so is that in a memory', () => {
  const tops = new Map(targets(2_000).map(target => [target, `/pool/${target}.1`]));
  let xml = '';
  expect(
    parses(
      () => ({ xml } = restoredMemoryXml(domainXml, input, tops, new Map([['/former/cd', '/pool/cd']]))),
    ),
  ).toBe(1);
  const disks = disksOf(xml);
  expect(disks.get('vd1999')).toEqual(['/pool/vd1999.1', 'qcow2']);
  expect(disks.get('sda')?.[0]).toBe('/pool/cd');
  expect(LEFT.some(target => disks.has(target))).toBe(false);
});

test('so is a saved state, and it speaks of no disk that its domain has not', () => {
  const overlays = [...targets(2_000), 'vd9999'].map(
    target => `<disk name='${target}' snapshot='external'><source file='/former/${target}.1'/></disk>`,
  );
  const state = {
    record: { name: 's' },
    xml: `<domainsnapshot><name>s</name><description>mine</description><creationTime>1</creationTime>
      <disks>${overlays.join('')}</disks>${domainXml}</domainsnapshot>`,
    parent: null,
    frozen: new Map(targets(2_000).map(target => [target, { disk: target, index: 0 }])),
  } as unknown as RestoredState;
  let xml = '';
  expect(parses(() => ({ xml } = restoredState(state, input, new Map(), [])))).toBe(1);
  const { disks, domain } = parseSnapshot(xml);
  expect(domain).toMatchObject({ name: 'copy' });
  expect(domain?.disks[0]).toMatchObject({ path: '/pool/vd0', format: 'qcow2' });
  expect(disks[0]).toMatchObject({ path: '/pool/vd0.1' });
  expect(disks.length).toBe(2_000);
});
