import { expect, test } from '@jest/globals';
import { bottomBacking, sliceSource, withArchiveChain } from './chain.ts';

const slices = [
  { member: 'a.qcow2', offset: 4096, sizeBytes: 1000 },
  { member: 'a_s1.snapshot', offset: 8192, sizeBytes: 512 },
];

test('the whole chain stands in the definition, top first, and is closed', () => {
  const xml = `<domain><devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/p/vda'/><backingStore/><target dev='vda'/></disk>
    <disk type='file' device='disk'><source file='/p/vdb'/><target dev='vdb'/></disk>
    <disk type='file' device='cdrom'><target dev='sda'/></disk></devices></domain>`;
  const next = withArchiveChain(xml, '/b/x&y.tar', [{ targetDev: 'vda', overlayPath: '/p/vda', slices }]);
  const compact = next.replaceAll(/>\s+</g, '><').replaceAll('"', "'");
  const layer = (offset: number, size: number) =>
    `<backingStore type='file'><format type='qcow2'/><source file='/b/x&amp;y.tar'><slices><slice type='storage' offset='${offset}' size='${size}'/></slices><seclabel model='dac' relabel='no'/></source>`;
  expect(compact).toContain(
    `<source file='/p/vda'/>${layer(8192, 512)}${layer(4096, 1024)}<backingStore/></backingStore></backingStore><target dev='vda'/>`,
  );
  expect(compact).toContain("<source file='/p/vdb'/><target dev='vdb'/>");
});

test('a layer alone, with nothing below it', () => {
  const file = { driver: 'raw', offset: 4096, size: 1024, file: { driver: 'file', filename: '/b/x.tar' } };
  const parsed = (text: string) => JSON.parse(text.slice('json:'.length)) as unknown;
  expect(parsed(sliceSource('/b/x.tar', slices[0]!))).toEqual({ driver: 'qcow2', file, backing: null });
  expect(parsed(bottomBacking('/b/x.tar', slices[0]!))).toEqual({ driver: 'qcow2', file });
});
