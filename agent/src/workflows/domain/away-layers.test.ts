import { beforeEach, describe, expect, jest, test } from '@jest/globals';

const NFS = 26985;
const EXT4 = 61267;

// the machine's table of mounts, scripted: what lies under /net is a network file system
jest.unstable_mockModule('node:fs/promises', () => ({
  ...jest.requireActual<typeof import('node:fs/promises')>('node:fs/promises'),
  statfs: async (path: string) => ({
    type: path.startsWith('/net/') ? NFS : EXT4,
    blocks: 1,
    bsize: 4096,
    bavail: 1,
  }),
}));

const { awayLayers, checkLayerPlace } = await import('./away-layers.ts');

const file = { written: true, block: false };
const device = { written: true, block: true };
const image = { written: false, block: false };
const place = (change: Partial<Parameters<typeof awayLayers>[0]> = {}) => ({
  domain: 'web',
  disks: [device, image],
  directory: '/bulk',
  period: 'from now on',
  allowNetwork: false,
  ...change,
});

describe('layers of a VM of devices alone', () => {
  test('are named, with where they lie and how long', () => {
    expect(awayLayers(place(), undefined)).toEqual({
      note: 'All disks of the VM are devices. What it writes from now on lies in /bulk, which must stay reachable as long.',
    });
  });

  test('are refused on the network unless that is allowed', () => {
    expect(awayLayers(place(), 'nfs')).toMatchObject({
      refusal: { msgKey: 'layers_on_network', params: { domain: 'web', directory: '/bulk', network: 'nfs' } },
    });
    expect(awayLayers(place({ allowNetwork: true }), 'nfs')).toMatchObject({
      note: expect.stringContaining('/bulk'),
    });
  });

  test.each([
    ['beside a file that the VM needs anyway', [device, file]],
    ['nowhere: it writes to no disk', [image]],
  ])('lie %s', (_where, disks) => {
    expect(awayLayers(place({ disks }), 'nfs')).toBeNull();
  });
});

describe('the file system under the directory decides', () => {
  let warnings: string[];
  const warn = (text: string) => void warnings.push(text);
  beforeEach(() => {
    warnings = [];
  });

  test('on the network nothing is made', async () => {
    await expect(checkLayerPlace(place({ directory: '/net/bulk' }), warn)).rejects.toMatchObject({
      msgKey: 'layers_on_network',
    });
    expect(warnings).toEqual([]);
  });

  test('a local one is named, and so is an allowed one', async () => {
    await checkLayerPlace(place(), warn);
    await checkLayerPlace(place({ directory: '/net/bulk', allowNetwork: true }), warn);
    expect(warnings).toEqual([expect.stringContaining('/bulk'), expect.stringContaining('/net/bulk')]);
  });

  test('a VM with a file among its disks is not asked about', async () => {
    await checkLayerPlace(place({ disks: [file], directory: '/net/bulk' }), warn);
    expect(warnings).toEqual([]);
  });
});
