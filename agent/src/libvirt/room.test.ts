import { expect, test } from '@jest/globals';
import { requireRoomIn } from './room.ts';

// a file system that never has room
const FULL = '/proc/self';

test('where there is no room libvirt is not asked to write', async () => {
  const full = { msgKey: 'disk_full', params: { path: FULL } };
  await expect(requireRoomIn(FULL)).rejects.toMatchObject(full);
  await expect(requireRoomIn(`${FULL}/not/made`)).rejects.toMatchObject({ msgKey: 'disk_full' });
});

test('where there is room the directory need not be there yet', async () => {
  await expect(requireRoomIn('/var/tmp/not/made/yet')).resolves.toBeUndefined();
});
