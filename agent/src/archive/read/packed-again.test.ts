/** Archives of ours that were unpacked and packed again by GNU tar: read by their manifests, wherever the members stand now. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { openArchive, verifyArchive } from '../index.ts';
import { appendState, noise, scratch, signal, tool, writeArchive } from '../test-kit.ts';

const dir = scratch();
afterAll(() => dir.remove());

const STATES = [1, 2, 3];

beforeAll(async () => {
  const path = dir.at('ours.tar');
  writeFileSync(dir.at('disk'), noise(150_000));
  await writeArchive(path, [{ name: 'd.qcow2', from: dir.at('disk') }], { hash: true });
  for (const state of [2, 3])
    await appendState(path, [{ name: `d_${state}.snapshot`, from: noise(40_000, state) }]);
  mkdirSync(dir.at('members'));
  await tool('tar', ['-C', dir.at('members'), '-xf', path]);
});

/** Packs the members, or a changed copy of them, in an order of its own. */
async function packed(name: string, options: string[], change = 'true', what = '.'): Promise<string> {
  const path = dir.at(name);
  const home = dir.at(`${name}.d`);
  await tool('bash', ['-euc', `cp -a members ${home} && cd ${home} && ${change}`], dir.path);
  await tool('tar', ['-C', home, ...options, '-cf', path, what]);
  return path;
}

describe.each([
  ['in the order of the names', '', ['--sort=name']],
  ['with what is read last at the beginning', 'reversed', []],
  ['in a directory', 'directory', ['--transform=s,^\\./,web/,']],
  ['by pax', 'pax', ['--format=posix']],
  ['as one stream of zstd', 'stream.zst', ['--zstd']],
])('packed again %s', (_how, name, options) => {
  test('every state is what it was', async () => {
    const what = name === 'reversed' ? '-T-' : '.';
    const path = dir.at(`again-${name || 'sorted'}.tar${name === 'stream.zst' ? '.zst' : ''}`);
    if (what === '-T-')
      await tool('bash', ['-euc', `ls -r members | tar -C members -cf ${path} -T -`], dir.path);
    else await tool('tar', ['-C', dir.at('members'), ...options, '-cf', path, '.']);
    const archive = await openArchive(path, signal);
    try {
      expect([archive.manifest, archive.seal, archive.damage]).toEqual([null, null, null]);
      expect(archive.again?.states.map(({ number }) => number)).toEqual(STATES);
      for (const number of STATES) {
        const manifest = await archive.manifestOfState(number);
        expect(manifest.states.at(-1)!.number).toBe(number);
        const out = dir.at(`out-${name}-${number}`);
        const member = number === 1 ? 'd.qcow2' : `d_${number}.snapshot`;
        await archive.extractMember(member, out, { signal, checkHash: true });
        const wanted = number === 1 ? noise(150_000) : noise(40_000, number);
        expect(readFileSync(out).equals(wanted)).toBe(true);
      }
    } finally {
      await archive.close();
    }
    expect(await verifyArchive(path, { signal })).toMatchObject({ problems: [], restorableStates: STATES });
  });
});

test('more states than a manifest repeats are read through those that it continues', async () => {
  const path = dir.at('long.tar');
  await writeArchive(path, [{ name: 'd.qcow2', from: noise(5000) }]);
  for (let state = 2; state <= 40; state += 1)
    await appendState(path, [{ name: `d_${state}.snapshot`, from: noise(100, state) }]);
  const again = dir.at('long-again.tar');
  const steps = `mkdir long && tar -C long -xf ${path} && cd long && ls | shuf --random-source=<(yes) | tar -cf ${again} -T -`;
  await tool('bash', ['-euc', steps], dir.path);
  const archive = await openArchive(again, signal);
  for (const number of [1, 20, 33, 39, 40])
    expect((await archive.manifestOfState(number)).states).toHaveLength(number);
  expect((await archive.verify({ signal })).restorableStates).toHaveLength(40);
  await archive.close();
});

test('content that was changed on the way is noticed where a hash is recorded', async () => {
  const path = await packed('changed.tar', [], 'printf x | dd of=d_2.snapshot seek=100 bs=1 conv=notrunc');
  const archive = await openArchive(path, signal);
  const extracted = archive.extractMember('d_2.snapshot', dir.at('o'), { signal, checkHash: true });
  await expect(extracted).rejects.toMatchObject({ msgKey: 'hash_mismatch' });
  await archive.close();
  const { problems, restorableStates } = await verifyArchive(path, { signal });
  expect(problems).toMatchObject([{ member: 'd_2.snapshot', problem: 'hash_mismatch' }]);
  // the manifests of this kit name no layers, so that no state needs it
  expect(restorableStates).toEqual(STATES);
});

test('without the newest state the others can be salvaged, and the member that is missing is named', async () => {
  const path = await packed('lacking.tar', [], 'rm d_3.snapshot');
  await expect(openArchive(path, signal)).rejects.toMatchObject({
    msgKey: 'archive_damaged',
    params: { reason: '0003_manifest.json: it lists "d_3.snapshot", which is not in the archive' },
  });
  const archive = await openArchive(path, signal, { salvage: true });
  expect(archive.again?.states).toHaveLength(2);
  await archive.close();
  expect((await verifyArchive(path, { signal })).restorableStates).toEqual([1, 2]);
});

test.each([
  ['rm d.qcow2', '"d.qcow2", which is not in the archive'],
  ['truncate -s +1 d.qcow2', '"d.qcow2" has 150001 bytes, and 150000 are recorded'],
  ['for m in *manifest.json; do echo no > $m; done', 'it cannot be read as a manifest'],
  ['ln -sf /etc/passwd d.qcow2', '"d.qcow2" is no plain file in the tar'],
])('%s: what does not fit is named', async (change, reason) => {
  const path = await packed(`refused-${change.length}.tar`, [], change);
  await expect(openArchive(path, signal, { salvage: true })).rejects.toMatchObject({
    msgKey: 'archive_damaged',
    params: { reason: expect.stringContaining(reason) },
  });
});

test('a sparse member is named as what it is', async () => {
  const path = await packed('sparse.tar', ['-S', '--format=posix'], 'truncate -s 2M d.qcow2');
  await expect(openArchive(path, signal)).rejects.toMatchObject({
    params: { reason: expect.stringContaining('"d.qcow2" is no plain file in the tar') },
  });
});
