/** Uploads on real directories: what others do between two steps, and what an earlier run of the agent has left. */
import { createHash } from 'node:crypto';
import {
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { BACKUPS_DIR, guardBackups } from '@virtkeep/shared/beneath';
import { createLogger } from '@virtkeep/shared/log';
import type { PoolRecord } from '../../../pools/index.ts';
import { samplePool } from '../../../pools/sample-pool.ts';
import { removePartial } from './place.ts';
import { Receiver } from './receiver.ts';
import { UploadRecords } from './record.ts';
import { uploadFile } from './upload-file.ts';
import { type NewUpload, Uploads } from './uploads.ts';

const BYTES = Buffer.alloc(3 * 1024 * 1024, 'abc');
const { signal } = new AbortController();

let root: string;
let pool: PoolRecord;
/** Before the pools are told. */
let asked: () => Promise<void>;
const stored = new Map<string, unknown>();
const settings = {
  get: (key: string) => structuredClone(stored.get(key)),
  set: (key: string, value: unknown) => void stored.set(key, structuredClone(value)),
};

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'virtkeep-uploads-'));
  guardBackups(root);
  pool = samplePool('p', { path: root, available: 1e12 });
  asked = async () => {};
  stored.clear();
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

/** As the agent has it after a start. */
const started = () =>
  new Uploads({
    settings,
    pools: async () => {
      await asked();
      return [pool];
    },
    nodeName: 'n',
    filesChanged: () => {},
    look: async () => undefined,
    log: createLogger('test', 'error'),
    expiryMs: 3_600_000,
  });

const NEW: NewUpload = {
  ...{ id: 'u', owner: 'o', poolId: 'id-p', filename: 'vm.tar', sizeBytes: BYTES.length, sha256: '' },
  isOneWrite: false,
};
const backups = (name = '') => join(root, BACKUPS_DIR, name);
const hidden = () => readdirSync(backups()).filter(name => name.startsWith('.virtkeep-'));

async function* once(bytes: Buffer): AsyncGenerator<Uint8Array> {
  yield bytes;
}
const part = (offset: number, bytes: Buffer) => ({ offset, last: false, bytes: once(bytes) });

test('a part for an offset that the device has lost is not written elsewhere', async () => {
  const uploads = started();
  const record = await uploads.create(NEW, signal);
  const records = new UploadRecords(settings);
  const receiver = new Receiver(record, records);
  await receiver.take(part(0, BYTES.subarray(0, 2_000_000)), signal);
  await receiver.close();
  truncateSync(record.partial.path, 1_000_000);
  const later = new Receiver(records.find('u')!, records);
  await expect(later.take(part(2_000_000, BYTES.subarray(2_000_000)), signal)).rejects.toMatchObject({
    msgKey: 'upload_offset',
  });
  await later.take(part(1_000_000, BYTES.subarray(1_000_000)), signal);
  await later.close();
  expect(readFileSync(record.partial.path).equals(BYTES)).toBe(true);
});

test('what could not be made durable has not come, though the system calls it durable when it is asked again', async () => {
  const record = await started().create(NEW, signal);
  const records = new UploadRecords(settings);
  const receiver = new Receiver(record, records);
  await receiver.take(part(0, BYTES.subarray(0, 1_000_000)), signal);
  const handle = await open(record.partial.path, 'r');
  const full = Object.assign(new Error('no room'), { code: 'EDQUOT' });
  const sync = jest.spyOn(Object.getPrototypeOf(handle) as FileHandle, 'sync').mockRejectedValueOnce(full);
  try {
    const second = receiver.take(part(1_000_000, BYTES.subarray(1_000_000, 2_000_000)), signal);
    await expect(second).rejects.toMatchObject({ msgKey: 'disk_full' });
    expect(sync).toHaveBeenCalledTimes(1);
  } finally {
    sync.mockRestore();
    await handle.close();
  }
  expect(records.find('u')!.durableBytes).toBe(1_000_000);
  expect(statSync(record.partial.path).size).toBe(1_000_000);
  await receiver.take(part(1_000_000, BYTES.subarray(1_000_000)), signal);
  const sum = createHash('sha256').update(BYTES).digest('hex');
  await expect(receiver.sha256(signal, () => {})).resolves.toBe(sum);
  await receiver.close();
});

test('one that is being made is not swept away, also one that is sent in one go', async () => {
  const uploads = started();
  const reached = Promise.withResolvers<void>();
  const goOn = Promise.withResolvers<void>();
  asked = async () => {
    reached.resolve();
    await goOn.promise;
  };
  const made = uploads.turns.run('u', () => uploads.create({ ...NEW, isOneWrite: true }, signal));
  await reached.promise;
  const swept = uploads.sweep(signal);
  goOn.resolve();
  await made;
  await swept;
  // nobody has begun an operation for it: it goes by the next look, whole
  await uploads.sweep(signal);
  expect(hidden()).toEqual([]);
  expect(new UploadRecords(settings).all()).toEqual([]);
});

test('a repeated call after a stop of the agent finds what the first one has made', async () => {
  const first = await started().create(NEW, signal);
  const again = await started().create(NEW, signal);
  expect(again.partial).toEqual(first.partial);
  expect(hidden()).toHaveLength(1);
});

test('what cannot be reached is given up, and goes when it can', async () => {
  const uploads = started();
  await uploads.create(NEW, signal);
  pool = { ...pool, mounted: false };
  await expect(uploads.remove('u')).rejects.toMatchObject({ msgKey: 'pool_not_mounted' });
  expect(() => uploads.get('u')).toThrow(expect.objectContaining({ msgKey: 'upload_not_found' }));
  await uploads.sweep(signal);
  expect(hidden()).toHaveLength(1);
  pool = { ...pool, mounted: true };
  await uploads.sweep(signal);
  expect(hidden()).toEqual([]);
});

describe('a file that has its name, though its operation was stopped before it ended, stays: it is whole', () => {
  /** What a stop of the agent leaves after the last step. */
  async function published(request: Partial<NewUpload> = {}): Promise<void> {
    const { partial, path } = await started().create({ ...NEW, ...request }, signal);
    const records = new UploadRecords(settings);
    const receiver = new Receiver(records.find('u')!, records);
    await receiver.take(part(0, BYTES), signal);
    await receiver.close();
    records.change('u', { isVerified: true });
    linkSync(partial.path, path);
  }
  const isAlone = () => {
    expect(readdirSync(backups())).toEqual(['vm.tar']);
    expect(readFileSync(backups('vm.tar')).equals(BYTES)).toBe(true);
    expect(new UploadRecords(settings).all()).toEqual([]);
  };

  test('when who sent it ends it', async () => {
    await published();
    await started().remove('u');
    isAlone();
  });

  test('when nobody asks for it any more', async () => {
    await published();
    const records = new UploadRecords(settings);
    records.change('u', { idle: { ...records.find('u')!.idle, idleMs: 86_400_000 } });
    await started().sweep(signal);
    isAlone();
  });

  test('when it was sent in one go', async () => {
    await published({ isOneWrite: true });
    await started().sweep(signal);
    isAlone();
  });
});

test('nothing is removed through a link in the place of its directory', async () => {
  const record = await started().create({ ...NEW, filename: 'shop/vm.tar' }, signal);
  const records = new UploadRecords(settings);
  mkdirSync(join(root, 'elsewhere', 'empty'), { recursive: true });
  renameSync(backups('shop'), join(root, 'moved'));
  symlinkSync(join(root, 'elsewhere'), backups('shop'));
  await removePartial(records, record).catch(() => {});
  expect(existsSync(join(root, 'elsewhere', 'empty'))).toBe(true);
});

test('another file in the place of the hidden one does not get the name', async () => {
  const uploads = started();
  const record = await uploads.create(NEW, signal);
  const records = new UploadRecords(settings);
  const receiver = new Receiver(record, records);
  await receiver.take(part(0, BYTES), signal);
  const work = {
    ...{ id: 'u', records, receiver, discard: async () => {}, filesChanged: () => {} },
    look: async () => undefined,
  };
  const context = {
    signal,
    warn: () => {},
    progress: { total: () => {}, done: () => {} },
    commit: () => {},
    step: async (name: string, run: () => Promise<unknown>) => {
      const result = await run();
      if (name !== 'hash') return result;
      rmSync(record.partial.path);
      writeFileSync(record.partial.path, BYTES.subarray(0, 10));
      return result;
    },
  };
  await expect(uploadFile(work)(context as never)).rejects.toMatchObject({ msgKey: 'io_failed' });
  expect(existsSync(backups('vm.tar'))).toBe(false);
});
