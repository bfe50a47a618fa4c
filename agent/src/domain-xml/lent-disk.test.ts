import { describe, expect, test } from '@jest/globals';
import * as xml from './index.ts';
import { LIVE_XML } from './sample-xml.ts';

const DISK = 'bbbbbbbb-2222-4333-8444-555555555555';
const lent: xml.LentDisk = {
  diskId: DISK,
  path: '/pool/a<b.qcow2',
  format: 'qcow2',
  block: false,
  targetDev: 'vdz',
};
const withDisk = (disk: string) => LIVE_XML.replace('</devices>', `${disk}</devices>`);

describe('a lent disk', () => {
  test('is read-only, virtio, cache none, with an alias that tells the original', () => {
    const disk = xml
      .parseDomain(withDisk(xml.lentDiskXml(lent)))
      .disks.find(item => item.targetDev === 'vdz')!;
    expect(disk).toMatchObject({
      path: lent.path,
      format: 'qcow2',
      readonly: true,
      bus: 'virtio',
      cache: 'none',
    });
    expect(disk.serial).toBe('bbbbbbbb222243338444');
    expect(xml.lentDiskIdOf(disk.alias)).toBe(DISK);
    expect(xml.isLent(disk, { attachments: [] })).toBe(true);
    expect(xml.lentDiskXml(lent)).toContain('io="native"');
  });

  test('a block device has a source of its kind', () => {
    const text = xml.lentDiskXml({ ...lent, block: true, format: 'raw', path: '/dev/zvol/a' });
    expect(text).toContain('<disk type="block"');
    expect(text).toContain('<source dev="/dev/zvol/a"/>');
  });

  test.each([undefined, 'virtio-disk0', 'ua-mine', 'ua-virtkeep-1234', `ua-virtkeep-${DISK}`])(
    'the alias %s tells no original',
    alias => expect(xml.lentDiskIdOf(alias)).toBeUndefined(),
  );

  test('one without alias is known by the metadata, when it is read-only', () => {
    const attachments = [
      { diskId: DISK, ownerId: DISK, attachedId: DISK, targetDev: 'vdq', path: '/p', thinClone: false },
    ];
    expect(xml.isLent({ path: '/p', readonly: true }, { attachments })).toBe(true);
    expect(xml.isLent({ path: '/p', readonly: false }, { attachments })).toBe(false);
    expect(xml.isLent({ path: '/q', readonly: true }, { attachments })).toBe(false);
  });

  test('a definition is freed of lent disks alone', () => {
    const before = xml.parseDomain(LIVE_XML).disks;
    const text = withDisk(xml.lentDiskXml(lent));
    expect(xml.parseDomain(xml.removeLentDisks(text)).disks).toEqual(before);
    expect(xml.parseDomain(xml.removeLentDisks(text, path => path === lent.path)).disks).toHaveLength(
      before.length + 1,
    );
  });
});

describe('loans and attachments in the metadata', () => {
  const metadata: xml.DomainMetadata = {
    template: false,
    templateVersion: 0,
    attachments: [
      {
        diskId: DISK,
        ownerId: 'cccccccc-2222-4333-8444-555555555555',
        attachedId: 'dddddddd-2222-4333-8444-555555555555',
        targetDev: 'vdz',
        path: '/pool/frozen.qcow2',
        thinClone: false,
        clone: true,
        detaching: true,
        keepClone: true,
      },
    ],
    loans: [
      { diskId: DISK, borrowerId: 'eeeeeeee-2222-4333-8444-555555555555' },
      {
        diskId: DISK,
        borrowerId: 'ffffffff-2222-4333-8444-555555555555',
        borrowerNodeId: 'n',
        cloneKept: true,
      },
    ],
  };

  test('come back as they were written', () => {
    expect(xml.parseDomain(xml.setMetadata(LIVE_XML, metadata)).metadata).toEqual(metadata);
    expect(xml.metadataElement(metadata)).toContain('<loan disk=');
  });

  test('a loan alone is worth keeping', () => {
    const element = xml.metadataElement({ ...xml.NO_METADATA, loans: metadata.loans! });
    expect(element).toContain('borrower-node="n"');
    expect(xml.metadataElement({ ...xml.NO_METADATA, loans: [] })).toBeNull();
  });
});
