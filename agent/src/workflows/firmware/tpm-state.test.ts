import {
  existsSync,
  fstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, jest, test } from '@jest/globals';
import { Header } from 'tar';
import { packTpmState, replaceTpmState, unpackTpmState } from './tpm-state.ts';

const root = mkdtempSync(join(tmpdir(), 'vk-tpm-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

test('the state comes back as it was, for another domain', async () => {
  const own = join(root, 'a', 'tpm2');
  mkdirSync(own, { recursive: true });
  writeFileSync(join(own, 'tpm2-00.permall'), Buffer.alloc(1500, 7));
  writeFileSync(join(own, '.lock'), '');
  const state = await packTpmState(root, 'a');
  await unpackTpmState(state!, root, 'b');
  expect(readFileSync(join(root, 'b', 'tpm2', 'tpm2-00.permall'))).toEqual(Buffer.alloc(1500, 7));
  await expect(unpackTpmState(state!, root, 'b')).rejects.toMatchObject({ msgKey: 'file_exists' });
  // swtpm writes beside the state, and renames: what it has not ended may be gone any moment
  writeFileSync(join(root, 'a', 'tpm2', 'TMP2-00.permall'), 'half');
  expect((await packTpmState(root, 'a'))!.equals(state!)).toBe(true);
  expect(await packTpmState(root, 'none')).toBeNull();
});

test('one that cannot be written whole does not cost the one that is there', async () => {
  const own = join(root, 'kept', 'tpm2');
  mkdirSync(own, { recursive: true });
  writeFileSync(join(own, 'tpm2-00.permall'), 'mine');
  const state = (await packTpmState(root, 'kept'))!;
  // the second file of a name cannot be made, as on a full disk none can
  const broken = Buffer.concat([state.subarray(0, 1024), state]);
  await expect(replaceTpmState(broken, root, 'kept')).rejects.toBeDefined();
  expect(readFileSync(join(own, 'tpm2-00.permall'), 'utf8')).toBe('mine');
  expect(readdirSync(root).filter(name => name.startsWith('kept'))).toEqual(['kept']);
  await replaceTpmState(null, root, 'kept');
  expect(existsSync(join(root, 'kept'))).toBe(false);
  await replaceTpmState(state, root, 'kept');
  expect(readFileSync(join(own, 'tpm2-00.permall'), 'utf8')).toBe('mine');
});

/** What would be there after a power cut: everything that was flushed, as it was then. */
async function recordFlushes(work: () => Promise<void>): Promise<Map<number, string | string[]>> {
  const flushed = new Map<number, string | string[]>();
  const handle = await open(root, 'r');
  const prototype = Object.getPrototypeOf(handle) as FileHandle;
  await handle.close();
  const { sync } = prototype;
  const spy = jest.spyOn(prototype, 'sync').mockImplementation(async function (this: FileHandle) {
    const [{ ino }, path] = [fstatSync(this.fd), `/proc/self/fd/${this.fd}`];
    flushed.set(ino, statSync(path).isDirectory() ? readdirSync(path).sort() : readFileSync(path, 'utf8'));
    await sync.call(this);
  });
  await work().finally(() => spy.mockRestore());
  return flushed;
}

test('a state that was put into place is there after a power cut, also when a run before had put it there', async () => {
  const own = join(root, 'was', 'tpm2');
  mkdirSync(own, { recursive: true });
  writeFileSync(join(own, 'tpm2-00.permall'), 'keys');
  const state = await packTpmState(root, 'was');
  const places = ['', 'cut', 'cut/tpm2', 'cut/tpm2/tpm2-00.permall'];
  for (let run = 0; run < 2; run += 1) {
    const flushed = await recordFlushes(() => replaceTpmState(state, root, 'cut'));
    const durable = places.map(place => flushed.get(statSync(join(root, place)).ino));
    expect(durable).toEqual([readdirSync(root).sort(), ['tpm2'], ['tpm2-00.permall'], 'keys']);
  }
  const flushed = await recordFlushes(() => replaceTpmState(null, root, 'cut'));
  expect(flushed.get(statSync(root).ino)).not.toContain('cut');
});

test.each([null, 'mine'])('what a crash left of another state does not stay: %s', async content => {
  const [own, left] = [join(root, 'crashed', 'tpm2'), join(root, 'crashed.virtkeep-new', 'tpm2')];
  for (const [directory, text] of [
    [own, 'mine'],
    [left, 'other'],
  ] as const) {
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, 'tpm2-00.permall'), text);
  }
  await replaceTpmState(content === null ? null : await packTpmState(root, 'crashed'), root, 'crashed');
  expect(readdirSync(root).filter(name => name.startsWith('crashed.'))).toEqual([]);
  expect(existsSync(own)).toBe(content !== null);
});

function tarOf(path: string, type: 'File' | 'SymbolicLink' = 'File', size = 0): Buffer {
  const block = Buffer.alloc(1536);
  new Header({
    path,
    type,
    size,
    mode: 0o600,
    mtime: new Date(0),
    ...(type === 'SymbolicLink' && { linkpath: '/etc' }),
  }).encode(block);
  return block;
}

test.each([
  ['a path that leaves', tarOf('tpm2/../../x')],
  ['an absolute path', tarOf('/etc/passwd')],
  ['a link', tarOf('tpm2/x', 'SymbolicLink')],
  ['a size beyond its end', tarOf('tpm2/x', 'File', 10_000)],
  ['another directory', tarOf('other/x')],
  ['nothing', Buffer.alloc(1024)],
  ['no tar', Buffer.alloc(1024, 1)],
])('a hostile state is refused: %s', async (_name, state) => {
  await expect(unpackTpmState(state, root, 'c')).rejects.toMatchObject({ msgKey: 'archive_damaged' });
});
