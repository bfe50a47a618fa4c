import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
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

function tarOf(path: string, type: 'File' | 'SymbolicLink' = 'File', size = 0): Buffer {
  const block = Buffer.alloc(1536);
  new Header({
    path,
    type,
    size,
    mode: 0o600,
    mtime: new Date(0),
    linkpath: type === 'File' ? undefined : '/etc',
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
