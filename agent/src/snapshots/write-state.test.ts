import { expect, test } from '@jest/globals';
import { requireRoomForStates } from './write-state.ts';

// a file system that never has room
const FULL = '/proc/self';

test('where there is no room no state is written: libvirt would drop it', async () => {
  const full = { msgKey: 'disk_full', params: { path: FULL } };
  await expect(requireRoomForStates(FULL)).rejects.toMatchObject(full);
  await expect(requireRoomForStates(`${FULL}/not/made`)).rejects.toMatchObject({ msgKey: 'disk_full' });
});

test('where there is room the directory need not be there yet', async () => {
  await expect(requireRoomForStates('/var/tmp/not/made/yet')).resolves.toBeUndefined();
});
