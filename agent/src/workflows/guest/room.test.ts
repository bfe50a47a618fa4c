import { expect, test } from '@jest/globals';
import { orAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { withRoom } from './room.ts';

// a file system that never has room
const FULL = '/proc/self/image';
const ROOMY = '/var/tmp/image';
const signal = new AbortController().signal;
const forEver = new Promise<never>(() => {});

test('a program that would wait for room for ever is ended, with the name of what is full', async () => {
  const work = withRoom([ROOMY, FULL], signal, ending => orAborted(forEver, ending));
  await expect(work).rejects.toMatchObject({ msgKey: 'disk_full', params: { path: FULL } });
});

test('what a program says about a full disk is said with its name; all else is as the program says', async () => {
  const failing = async () => {
    throw new Error('write failed');
  };
  await expect(withRoom([FULL], signal, failing)).rejects.toMatchObject({ msgKey: 'disk_full' });
  await expect(withRoom([ROOMY], signal, failing)).rejects.toThrow('write failed');
  await expect(withRoom([ROOMY], signal, async () => 'done')).resolves.toBe('done');
});

test('a cancel is a cancel', async () => {
  const canceled = AbortSignal.abort(new VirtkeepError('canceled'));
  const work = withRoom([FULL], canceled, ending => orAborted(forEver, ending));
  await expect(work).rejects.toMatchObject({ msgKey: 'canceled' });
});
