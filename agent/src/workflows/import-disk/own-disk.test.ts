import { describe, expect, test } from '@jest/globals';
import type { DiskConfig } from '../../domain-xml/index.ts';
import { nextTarget, ownDiskXml, requireBus } from './own-disk.ts';

const form = (...targets: string[]) => ({ disks: targets.map(targetDev => ({ targetDev }) as DiskConfig) });
const refusal = (text: string) =>
  expect.objectContaining({ msgKey: 'invalid_field', message: expect.stringContaining(text) });

describe('the name of a further disk', () => {
  test('is free in the running VM and in its definition', () => {
    expect(nextTarget('virtio', { live: form('vda', 'sda'), config: form('vda', 'vdb') }, false)).toBe('vdc');
    expect(nextTarget('virtio', { live: undefined, config: form('hda') }, false)).toBe('vda');
    expect(nextTarget('scsi', { live: form('sda'), config: form('sda') }, true)).toBe('sdb');
    expect(nextTarget('sata', { live: undefined, config: form('vda', 'sda') }, false)).toBe('sdb');
  });

  test('is none where the bus takes no disk', () => {
    const running = { live: form(), config: form() };
    expect(() => nextTarget('sata', running, true)).toThrow(refusal('while the VM runs'));
    expect(() => nextTarget('scsi', running, false)).toThrow(refusal('no SCSI controller'));
  });
});

test('a bus that is not known is refused; none is virtio', () => {
  expect([requireBus(''), requireBus('sata')]).toEqual(['virtio', 'sata']);
  expect(() => requireBus('ide')).toThrow(refusal('virtio, scsi, sata'));
});

test('what libvirt is told names its format, and is text whatever the path', () => {
  const xml = ownDiskXml({ path: `/p/a'<&".qcow2`, targetDev: 'vdb', bus: 'virtio' });
  expect(xml).toContain('<driver name="qemu" type="qcow2"/>');
  expect(xml).toContain('&lt;&amp;&quot;.qcow2');
});
