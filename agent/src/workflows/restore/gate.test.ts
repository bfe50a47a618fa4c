import { expect, test } from '@jest/globals';
import type { ArchiveTrust } from '../../archive/index.ts';
import { gateOf, leftOutWarnings, screenDefinition, screenState } from './gate.ts';
import type { Placement } from './placement.ts';

const XML = `<domain type='kvm'><name>vm</name><devices>
  <disk type='file' device='disk'><source file='/former/a.qcow2'/><target dev='vda'/></disk>
  <hostdev mode='subsystem' type='pci'/></devices></domain>`;

test.each<[ArchiveTrust, string[]]>([
  ['own', []],
  ['fleet', [expect.stringContaining('devices/hostdev') as unknown as string]],
  ['foreign', [expect.stringContaining('devices/hostdev') as unknown as string]],
])('what an archive that is %s brings to the node', (trust, warnings) => {
  const screened = screenDefinition(XML, trust);
  expect(screened.warnings).toEqual(warnings);
  expect(screened.xml.includes('hostdev')).toBe(trust === 'own');
  expect(screened.xml).toContain('/former/a.qcow2');
});

test('a file is allowed for what the restore made it for, and for nothing else', () => {
  const placement = {
    disks: [
      { disk: { encryption: null }, layers: [{ path: '/pool/base' }, { path: '/pool/top' }] },
      { disk: { encryption: { format: 'luks' } }, layers: [{ path: '/pool/crypt' }] },
    ],
    images: [{ path: '/pool/cd.iso' }, { path: '/pool/cd.qcow2' }],
    drives: new Map([['sda', '/pool/cd.iso'], ['sdb', null], ['sdc', '/pool/former.iso'], ['sdd', '/pool/cd.qcow2']]), // biome-ignore format: pairs
  } as unknown as Placement;
  const input = { trust: 'own', placement, nvramPath: null, attachable: new Map() } as const;
  const gate = gateOf({ ...input, qcow2Images: new Set(['/pool/cd.qcow2']) }, ['/pool/m']);
  const uses = (path: string) =>
    (['disk', 'drive', 'memory', 'nvram'] as const).filter(use => gate.fileAt(path, use));
  expect(uses('/pool/base')).toEqual(['disk']);
  expect(uses('/pool/cd.iso')).toEqual(['drive']);
  expect(uses('/pool/m')).toEqual(['memory']);
  expect(uses('')).toEqual([]);
  expect(gate.fileAt('/pool/top', 'disk')).toEqual({ format: 'qcow2' });
  expect(gate.fileAt('/pool/crypt', 'disk')).toEqual({ format: 'raw' });
  expect(gate.fileAt('/pool/cd.iso', 'drive')).toEqual({ format: 'raw', isReadonly: false });
  expect(gate.fileAt('/pool/cd.qcow2', 'drive')).toEqual({ format: 'qcow2', isReadonly: false });
  expect(gate.fileAt('/pool/former.iso', 'drive')).toEqual({ format: 'raw', isReadonly: true });
});

test('a saved state that cannot be read is told of, and a long list is cut', () => {
  expect(screenState('<nonsense/>', 's', 'foreign')).toEqual([expect.stringContaining('cannot be read')]);
  const many = Array.from({ length: 40 }, (_, index) => `devices/x${index}`);
  expect(leftOutWarnings('it', { leftOut: many })).toEqual([expect.stringContaining('and 10 more')]);
});
